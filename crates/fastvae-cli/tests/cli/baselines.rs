//! Baselines behind the same commands as models, and comparisons of several.

use std::path::Path;
use std::time::SystemTime;

use crate::Place;

#[test]
fn a_saved_baseline_is_evaluated_recommends_and_compares_items() {
    let place = Place::with_data();
    for model in ["popularity", "item-knn", "ease", "wrmf", "bpr"] {
        let trained = place.json(&[
            "train",
            "data.tsv.zst",
            "-o",
            "b.fastvae",
            "--model",
            model,
            "--split",
            "ratio:0.8",
            "--store-users",
            "--titles",
            "titles.csv",
            "--at",
            "10",
        ]);
        assert_eq!(trained["model"], model);
        let (learned, of) = (&trained["learned"]["interactions"], &trained["learned"]["of"]);
        assert!(learned.as_u64() < of.as_u64() && *of == trained["n_interactions"], "{trained}");
        let (ndcg, popular) = (trained["ndcg@10"].as_f64().unwrap(), &trained["popularity"]["ndcg@10"]);
        match model {
            "popularity" => assert!((ndcg - popular.as_f64().unwrap()).abs() < 1e-9),
            _ => assert!(ndcg > popular.as_f64().unwrap(), "{model}: {ndcg} against {popular}"),
        }
        // The stored histories are all of the data, so nothing of it is left to be found.
        let error = place.failure(&["evaluate", "b.fastvae", "--test", "data.tsv.zst", "--at", "10"], 1);
        assert!(error.contains("nothing can be found") && error.contains("--history"), "{error}");
        let list = place.json(&["recommend", "b.fastvae", "--user", "17", "-n", "6"]);
        assert_eq!(list["items"].as_array().unwrap().len(), 6, "{model}");
        assert!(list["items"][0]["title"].is_string());
        match model {
            "popularity" => {
                let error = place.failure(&["similar", "b.fastvae", "42", "-n", "3"], 1);
                assert!(error.contains("item-knn"), "{error}");
            }
            _ => {
                let near = place.json(&["similar", "b.fastvae", "42", "-n", "3"]);
                assert_eq!(near["item"], "42");
            }
        }
        // Only methods that fold a history in can answer for one that belongs to nobody.
        let call = ["recommend", "b.fastvae", "--history", "3,4,5", "-n", "4"];
        match model {
            "bpr" => assert!(place.failure(&call, 1).contains("wrmf")),
            _ => assert_eq!(place.json(&call)["items"].as_array().unwrap().len(), 4, "{model}"),
        }
    }
}

#[test]
fn a_comparison_goes_on_where_it_stopped() {
    let place = Place::with_data();
    let call =
        ["compare", "data.tsv.zst", "--models", "popularity,item-knn,ease", "--folds", "2", "--at", "10"];
    let first = place.json(&call);
    let models: Vec<&str> =
        first["models"].as_array().unwrap().iter().map(|line| line["model"].as_str().unwrap()).collect();
    assert_eq!(models.len(), 3);
    assert_eq!(models[2], "popularity", "{models:?}");
    for file in ["comparison.md", "comparison.csv", "comparison.json", "comparison.svg", "comparison.png"] {
        assert!(place.path("comparison").join(file).exists(), "{file}");
    }
    // As if it had been killed before the last run: the others are left as they are, byte and time.
    let runs = place.path("comparison").join("runs");
    let written = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let last = runs.join("ease-1.json");
    let others: Vec<_> = ["popularity-0", "item-knn-1", "ease-0"]
        .map(|name| runs.join(format!("{name}.json")))
        .into_iter()
        .map(|path| (written(&path), path))
        .collect();
    std::fs::remove_file(&last).unwrap();
    let second = place.json(&call);
    assert!(last.exists());
    for (before, path) in others {
        assert!(before.is_some() && before == written(&path), "{} was done again", path.display());
    }
    let metrics = |value: &serde_json::Value| value["models"][0]["metrics"].clone();
    assert_eq!(metrics(&first), metrics(&second));
    // Results of other folds must not be mixed in.
    let error = place.failure(
        &["compare", "data.tsv.zst", "--models", "ease", "--folds", "2", "--at", "10", "--seed", "5"],
        1,
    );
    assert!(error.contains("ease-0.json") && error.contains("-o"), "{error}");
}

#[test]
fn wrong_models_and_absent_datasets_say_what_there_is() {
    let place = Place::with_data();
    let error = place.failure(&["compare", "data.tsv.zst", "--models", "als"], 2);
    assert!(error.contains("`als`") && error.contains("wrmf"), "{error}");
    let error = place.failure(&["paper", "table1", "--data", "nowhere"], 2);
    assert!(error.contains("gowalla.mat") && error.contains("--data"), "{error}");
    let error = place.failure(&["paper", "fig-samplers", "--data", "nowhere"], 2);
    assert!(error.contains("gowalla.mat"), "{error}");
}

#[test]
fn the_divergence_figure_is_drawn_once_and_then_remembered() {
    let place = Place::with_data();
    std::fs::rename(place.path("data.tsv.zst"), place.path("ml10m.tsv.zst")).unwrap();
    let call = ["paper", "fig-divergence", "--quick", "--data", ".", "-o", "out"];
    let first = place.output(&call);
    assert!(first.contains("[holds] The exact MIDX proposal is the softmax."), "{first}");
    for file in ["fig-divergence.md", "fig-divergence.csv", "fig-divergence.svg", "fig-divergence.png"] {
        assert!(place.path("out").join(file).exists(), "{file}");
    }
    let run = place.path("out").join("runs/divergence-trained.json");
    let before = run.metadata().unwrap().modified().unwrap();
    assert_eq!(place.output(&call), first);
    assert_eq!(run.metadata().unwrap().modified().unwrap(), before);
}

#[test]
fn datasets_of_the_paper_are_taken_where_their_files_are() {
    let place = Place::new();
    // Every user has 15 of 30 items, so a 10-core is all of it; ratings and times as such files have them.
    let rows = |separator: char| {
        let mut text = ["user_id", "item_id", "rating", "timestamp"].join(&separator.to_string());
        for user in 0..40 {
            for item in (0..30).filter(|item| (user + item) % 2 == 0) {
                text += &format!(
                    "\nA{user}{separator}B{item}{separator}{}{separator}{}",
                    1 + item % 5,
                    1000 + user
                );
            }
        }
        text + "\n"
    };
    std::fs::create_dir(place.path("data")).unwrap();
    std::fs::write(place.path("data").join("amazon.csv"), rows(',')).unwrap();
    std::fs::write(place.path("data").join("netflix.tsv"), rows('\t')).unwrap();
    let table1 = place.output(&["paper", "table1", "--quick", "--data", "data", "-o", "out"]);
    assert!(table1.contains("Amazon") && table1.contains("Netflix"), "{table1}");
    let statistics = std::fs::read_to_string(place.path("out").join("table1.csv")).unwrap();
    assert!(
        statistics.contains("amazon,40,30,600") && statistics.contains("netflix,40,30,600"),
        "{statistics}"
    );
    place.output(&["paper", "table2", "--quick", "--data", "data", "-o", "out"]);
    let numbers = std::fs::read_to_string(place.path("out").join("table2.csv")).unwrap();
    for dataset in ["amazon", "netflix"] {
        let lines = numbers.lines().filter(|line| line.starts_with(dataset)).count();
        assert_eq!(lines, 9, "{numbers}");
    }
    let page = std::fs::read_to_string(place.path("out").join("table2.md")).unwrap();
    assert!(page.contains("0.1404") && page.contains("0.3238"), "the paper's values: {page}");
}
