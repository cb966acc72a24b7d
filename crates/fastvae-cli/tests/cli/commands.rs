//! Every command once, on generated data.

use crate::Place;

#[test]
fn help_fits_a_screen_and_says_what_to_try() {
    let help = Place::new().output(&["--help"]);
    assert!(help.lines().count() <= 40, "{help}");
    assert!(help.contains("fastvae demo"), "{help}");
}

#[test]
fn every_command_has_examples_that_name_it() {
    let place = Place::new();
    for command in [
        "demo",
        "generate",
        "inspect",
        "prepare",
        "train",
        "evaluate",
        "compare",
        "paper",
        "recommend",
        "similar",
        "plan",
        "completions",
    ] {
        let help = place.output(&[command, "--help"]);
        assert!(help.contains(&format!("Examples:\n  fastvae {command}")), "{help}");
    }
}

#[test]
fn completions_are_for_this_program() {
    assert!(Place::new().output(&["completions", "bash"]).contains("_fastvae"));
}

#[test]
fn generate_writes_what_was_asked_for_and_the_same_again() {
    let place = Place::with_data();
    let made = place.json(&[
        "generate",
        "-o",
        "again.tsv.zst",
        "--users",
        "400",
        "--items",
        "200",
        "--interactions",
        "8000",
        "--genres",
        "8",
    ]);
    let n = made["n_interactions"].as_u64().unwrap();
    assert!((7200..8800).contains(&n), "{n}");
    assert_eq!(
        std::fs::read(place.path("data.tsv.zst")).unwrap(),
        std::fs::read(place.path("again.tsv.zst")).unwrap()
    );
    let titles = std::fs::read_to_string(place.path("titles.csv")).unwrap();
    assert_eq!(titles.lines().count(), 201);
    let seen = place.json(&["inspect", "data.tsv.zst"]);
    assert_eq!((seen["users"].as_u64(), seen["interactions"].as_u64()), (Some(400), Some(n)));
}

#[test]
fn train_evaluate_recommend_and_similar_work_together() {
    let place = Place::with_data();
    let trained = place.json(&Place::train(&[
        "--split",
        "ratio:0.8",
        "--store-users",
        "--log",
        "log.jsonl",
        "--at",
        "10,20,50",
    ]));
    for key in [
        "ndcg@50",
        "recall@50",
        "ndcg@10",
        "recall@10",
        "ndcg@20",
        "recall@20",
        "precision@10",
        "map@10",
        "mrr@10",
        "hit-rate@10",
        "coverage@10",
        "epochs",
        "seconds_per_epoch",
        "index_seconds_per_epoch",
        "cpu_seconds_per_epoch",
        "evaluation_seconds",
        "evaluation_cpu_seconds",
        "peak_rss_bytes",
        "n_users",
        "n_items",
        "n_interactions",
        "threads",
        "best_epoch",
    ] {
        assert!(trained[key].is_number(), "{key}: {trained}");
    }
    for key in ["model", "proposal", "preset", "model_path", "recall_denominator", "version", "simd"] {
        assert!(trained[key].is_string(), "{key}: {trained}");
    }
    assert!(trained["standard_errors"]["ndcg@50"].is_number() && trained["config"]["kl"].is_object());
    let (ndcg, popular) = (&trained["ndcg@10"], &trained["popularity"]["ndcg@10"]);
    assert!(ndcg.as_f64() > popular.as_f64(), "{ndcg} against {popular}");
    let log = std::fs::read_to_string(place.path("log.jsonl")).unwrap();
    // A training on a part of the data is refitted on that part, and the log has both.
    let count = |key: &str| trained[key].as_u64().unwrap() as usize;
    assert_eq!(log.lines().count(), count("epochs") + count("refit_epochs"));
    assert!(!place.path("model.fastvae.checkpoint").exists());

    let model = place.json(&["inspect", "model.fastvae"]);
    assert_eq!((model["n_items"].as_u64(), model["stored_users"].as_u64()), (Some(200), Some(400)));
    assert_eq!(model["ndcg@50"], trained["ndcg@50"]);
    assert!(place.output(&["inspect", "model.fastvae"]).contains("proposal = \"midx-popularity\""));

    // The stored histories are all of the data, the test part with it: nothing in it is new, and nothing is listed again.
    let error = place.failure(&["evaluate", "model.fastvae", "--test", "data.tsv.zst", "--at", "5"], 1);
    assert!(error.contains("nothing can be found"), "{error}");

    let one = place.json(&["recommend", "model.fastvae", "--history", "3,4,5", "-n", "7"]);
    assert_eq!(one["items"].as_array().unwrap().len(), 7);
    assert!(one["items"][0]["title"].as_str().unwrap().contains('('), "{one}");
    let only = place.json(&[
        "recommend",
        "model.fastvae",
        "--history",
        "3",
        "--only",
        "3,5,7,9",
        "--exclude",
        "7",
        "--keep-seen",
    ]);
    let mut items: Vec<&str> =
        only["items"].as_array().unwrap().iter().map(|item| item["item"].as_str().unwrap()).collect();
    items.sort_unstable();
    assert_eq!(items, ["3", "5", "9"]);
    let text = place.output(&["recommend", "model.fastvae", "--user", "17"]);
    assert!(text.contains("history of") && text.contains("score"), "{text}");
    let by_data = place.json(&["recommend", "model.fastvae", "--user", "17", "--data", "data.tsv.zst"]);
    assert_eq!(by_data["user"], "17");

    for (file, n_lines) in [("all.csv", 1 + 400 * 4), ("all.jsonl", 400)] {
        place.output(&["recommend", "model.fastvae", "--users", "all", "-n", "4", "-o", file]);
        assert_eq!(std::fs::read_to_string(place.path(file)).unwrap().lines().count(), n_lines, "{file}");
    }
    let written = place.json(&["recommend", "model.fastvae", "--users", "all", "-o", "all.parquet"]);
    assert_eq!(written["n_users"], 400);
    std::fs::write(place.path("some.txt"), "5\n399\nnobody\n").unwrap();
    let lists = place.json(&["recommend", "model.fastvae", "--users", "some.txt", "-n", "2"]);
    assert_eq!(lists["users"].as_array().unwrap().len(), 2);
    let lines = place.output(&["recommend", "model.fastvae", "--users", "some.txt", "-n", "2"]);
    assert_eq!(lines.lines().count(), 5, "{lines}");

    let near = place.json(&["similar", "model.fastvae", "42", "-n", "3"]);
    assert_eq!(near["items"].as_array().unwrap().len(), 3);
    let title = near["title"].as_str().unwrap();
    assert_eq!(place.json(&["similar", "model.fastvae", title])["item"], "42");
}

#[test]
fn evaluate_agrees_with_train_on_the_same_split() {
    let place = Place::with_data();
    let text = {
        // Every fifth pair is tested.
        place.output(&[
            "generate",
            "-o",
            "all.tsv",
            "--users",
            "300",
            "--items",
            "150",
            "--interactions",
            "6000",
        ]);
        std::fs::read_to_string(place.path("all.tsv")).unwrap()
    };
    let (test, train): (Vec<_>, Vec<_>) = text.lines().enumerate().partition(|(at, _)| at % 5 == 0);
    let join =
        |lines: Vec<(usize, &str)>| lines.into_iter().map(|(_, l)| format!("{l}\n")).collect::<String>();
    std::fs::write(place.path("train.tsv"), join(train)).unwrap();
    std::fs::write(place.path("test.tsv"), join(test)).unwrap();
    let mut call = vec!["train", "train.tsv", "--test", "test.tsv", "-o", "m.fastvae", "--preset", "paper"];
    call.extend(["--epochs", "2", "--set", "negatives=20"]);
    let trained = place.json(&call);
    let evaluated = place.json(&["evaluate", "m.fastvae", "--test", "test.tsv", "--history", "train.tsv"]);
    for metric in ["ndcg@50", "recall@10", "mrr@20", "coverage@50"] {
        assert_eq!(trained[metric], evaluated[metric], "{metric}");
    }
    assert_eq!((&trained["preset"], &trained["epochs"]), (&"paper".into(), &2.into()));
    assert!(trained["best_epoch"].is_null());
}

#[test]
fn other_splits_and_models_train_too() {
    let place = Place::with_data();
    for more in [
        &["--split", "leave-one-out", "--proposal", "uniform"][..],
        &["--split", "users:0.2", "--sampler", "softmax"],
        &["--split", "none", "--model", "mult-vae"],
        &["--k-core", "5", "--threads", "1", "--seed", "9"],
        &["--split", "leave-one-out", "--refit"],
    ] {
        let mut call =
            vec!["train", "data.tsv.zst", "--epochs", "2", "--set", "hidden=16", "--set", "latent=8"];
        call.extend(["--set", "codewords=4"]);
        call.extend_from_slice(more);
        let trained = place.json(&call);
        let measures = more[0] == "--split" && more[1] != "none";
        assert_eq!(trained["ndcg@50"].is_number(), measures, "{trained}");
        assert_eq!(trained["proposal"].is_string(), !more.contains(&"mult-vae"), "{trained}");
        assert!(trained["model_path"].is_null());
    }
}

#[test]
fn plan_says_what_will_be_held() {
    let place = Place::with_data();
    let plan = place.json(&["plan", "data.tsv.zst", "--preset", "paper"]);
    assert!(plan["peak_bytes"].as_u64() > Some(1_000_000) && plan["fits"] == true, "{plan}");
    assert!(plan["seconds_per_epoch"].as_f64() > Some(0.0), "{plan}");
    assert!(plan["parts"].as_array().unwrap().len() > 5);
    let text = place.output(&["plan", "data.tsv.zst", "--no-calibration"]);
    assert!(text.contains("predicted peak") && text.contains("encoder with moments"), "{text}");
}

#[test]
fn bench_sets_epochs_of_several_settings_beside_each_other() {
    let place = Place::with_data();
    let call = ["bench", "data.tsv.zst", "--preset", "paper", "--set", "codewords=4", "--rounds", "3"];
    let against = ["--against", "proposal=uniform", "--against", "negatives=2000,threads=1"];
    let times = place.json(&[&call[..], &against].concat());
    assert_eq!(times["rounds"], 3, "{times}");
    let rows = times["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["settings"].as_str().unwrap()).collect();
    assert_eq!(names, ["as given", "proposal=uniform", "negatives=2000,threads=1"]);
    assert_eq!(rows[0]["ratio"], 1.0);
    for row in rows {
        assert_eq!(row["seconds"].as_array().unwrap().len(), 3, "{times}");
        assert!(row["ratio"].as_f64() > Some(0.0), "{times}");
    }
    assert!(rows[0]["index_share"].as_f64() > Some(0.0), "{times}");
    assert_eq!(rows[1]["index_share"], 0.0, "uniform has no index: {times}");
    let text = place.output(&[&call[..], &["--against", "threads=1"]].concat());
    assert!(text.contains("threads=1") && text.contains("medians of 3 rounds"), "{text}");
    // As many rounds as an index lasts, where there is one.
    let call = ["bench", "data.tsv.zst", "--preset", "paper", "--set", "codewords=4"];
    let lasting =
        ["--rounds", "1", "--against", "refresh_every=4", "--against", "model=mult-vae,refresh_every=9"];
    let times = place.json(&[&call[..], &lasting].concat());
    assert_eq!(times["rounds"], 4, "{times}");
    assert!(times["rows"][1]["index_share"].as_f64() > Some(0.0), "{times}");
    let error = place.failure(&[&call[..], &["--against", "latent=4,device=cuda:99"]].concat(), 1);
    assert!(error.contains("--against latent=4,device=cuda:99"), "{error}");
}

#[test]
fn demo_beats_popularity_and_shows_titles() {
    let place = Place::new();
    let small = [
        "demo",
        "--users",
        "800",
        "--items",
        "300",
        "--interactions",
        "24000",
        "--epochs",
        "12",
        "-o",
        "d.fastvae",
    ];
    let shown = place.json(&small);
    assert!(shown["ndcg@10"].as_f64() > shown["popularity"]["ndcg@10"].as_f64(), "{shown}");
    assert_eq!(shown["examples"].as_array().unwrap().len(), 3);
    let text = place.output(&small);
    assert!(text.contains("is recommended:") && text.contains("popular@10"), "{text}");
    assert!(place.path("d.fastvae").exists());
}

#[test]
fn quiet_is_quiet_and_logs_stay_off_standard_output() {
    let place = Place::with_data();
    let call = ["train", "data.tsv.zst", "--epochs", "1", "--set", "hidden=8", "--set", "latent=8"];
    let loud = place.fastvae(&call).arg("--json").output().unwrap();
    assert!(String::from_utf8_lossy(&loud.stderr).contains("epoch=1/1"), "{loud:?}");
    let quiet = place.fastvae(&call).args(["--json", "-q"]).output().unwrap();
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
}
