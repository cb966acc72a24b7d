//! What is said when something is wrong, and with which exit code.

use predicates::prelude::*;

use crate::Place;

/// A usage error that says `expected`.
fn usage(arguments: &[&str], expected: &str) {
    let place = Place::with_data();
    let error = place.failure(arguments, 2);
    assert!(error.contains(expected), "{expected:?} in {error}");
}

#[test]
fn mistakes_in_the_call_are_usage() {
    usage(&["train"], "DATA");
    usage(&["nonsense"], "unrecognized subcommand");
    usage(&["train", "data.tsv.zst", "--proposal", "midx"], "midx-popularity");
    usage(&["train", "data.tsv.zst", "--split", "half"], "ratio:0.8");
    usage(&["train", "data.tsv.zst", "--set", "negative=3"], "the nearest first: negatives,");
    usage(&["train", "data.tsv.zst", "--set", "hidden=0"], "`hidden`");
    usage(&["train", "data.tsv.zst", "--set", "kl.beta=1", "--set", "kl.gamma=1"], "both beta and gamma");
    usage(&["train", "data.tsv.zst", "--resume"], "--output");
    usage(&["train", "data.tsv.zst", "--test", "data.tsv.zst", "--k-core", "3"], "--k-core");
    usage(&["train", "data.tsv.zst", "--at", "0"], "at least 1");
    usage(&["bench", "data.tsv.zst", "--against", "uniform"], "--against uniform: give KEY=VALUE");
    usage(&["bench", "data.tsv.zst", "--against", "negative=3"], "--against negative: there is no such");
    usage(&["bench", "data.tsv.zst", "--against", "epochs=3"], "changes nothing");
    usage(&["bench", "data.tsv.zst", "--seed", "1", "--against", "seed=1"], "changes nothing");
    usage(&["recommend", "m.fastvae"], "--history");
    usage(&["generate", "-o", "x.tsv", "--users", "0"], "--users");
    usage(&["inspect", "data.tsv.zst", "--format", "xls"], "parquet");
}

#[test]
fn a_configuration_file_is_checked() {
    let place = Place::with_data();
    std::fs::write(place.path("bad.toml"), "learning_rat = 1\n").unwrap();
    let error = place.failure(&["train", "data.tsv.zst", "--config", "bad.toml"], 2);
    assert!(error.contains("bad.toml") && error.contains("nearest first: learning_rate,"), "{error}");
    std::fs::write(place.path("broken.toml"), "epochs = \n").unwrap();
    assert!(place.failure(&["plan", "data.tsv.zst", "--config", "broken.toml"], 2).contains("broken.toml"));
    assert!(place.failure(&["plan", "data.tsv.zst", "--config", "absent.toml"], 1).contains("absent.toml"));
}

#[test]
fn what_the_world_lacks_is_failure() {
    let place = Place::with_data();
    assert!(place.failure(&["train", "absent.csv"], 1).contains("absent.csv"));
    assert!(place.failure(&["inspect", "absent.fastvae"], 1).contains("absent.fastvae"));
    let error = place.failure(&["inspect", "titles.csv", "--user-col", "who"], 1);
    assert!(error.contains("`who`") && error.contains("--user-col"), "{error}");
    std::fs::write(place.path("empty.csv"), "").unwrap();
    assert!(place.failure(&["inspect", "empty.csv"], 1).contains("the file is empty"));
    assert!(place.failure(&["recommend", "data.tsv.zst", "--history", "1"], 1).contains("data.tsv.zst"));
}

#[test]
fn outputs_that_cannot_be_written_fail_before_the_work() {
    let place = Place::with_data();
    let error = place.failure(&["train", "absent.csv", "-o", "nowhere/model.fastvae"], 1);
    assert!(error.contains("nowhere") && !error.contains("absent.csv"), "{error}");
    std::fs::create_dir(place.path("folder")).unwrap();
    assert!(place.failure(&["train", "absent.csv", "-o", "folder"], 1).contains("folder"));
    assert!(place.failure(&["train", "absent.csv", "--log", "nowhere/l.jsonl"], 1).contains("nowhere"));
    assert!(place.failure(&["recommend", "m", "--users", "all", "-o", "lists.xls"], 2).contains(".parquet"));
}

#[test]
fn resuming_nothing_is_an_error_that_says_so() {
    let place = Place::with_data();
    let error = place.failure(&["train", "data.tsv.zst", "-o", "model.fastvae", "--resume"], 1);
    assert!(error.contains("no checkpoint model.fastvae.checkpoint"), "{error}");
}

#[test]
fn missing_histories_and_unknown_ids_are_named() {
    let place = Place::with_data();
    place.output(&Place::train(&[]));
    for call in [
        &["evaluate", "model.fastvae", "--test", "data.tsv.zst"][..],
        &["recommend", "model.fastvae", "--user", "3"],
        &["recommend", "model.fastvae", "--users", "all"],
    ] {
        assert!(place.failure(call, 1).contains("--store-users"), "{call:?}");
    }
    place
        .fastvae(&["recommend", "model.fastvae", "--history", "3,nobody"])
        .assert()
        .success()
        .stderr(predicate::str::contains("not known: nobody"));
    let nobody =
        place.fastvae(&["recommend", "model.fastvae", "--history", "no,body", "--json"]).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&nobody.stdout).unwrap();
    assert_eq!((list["fallback"].as_str(), list["items"].as_array().unwrap().len()), (Some("nobody"), 10));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("not known: no, body"));
    let error = place.failure(&["recommend", "model.fastvae", "--user", "x", "--data", "data.tsv.zst"], 1);
    assert!(error.contains("unknown user `x`"), "{error}");
    assert!(place.failure(&["similar", "model.fastvae", "no such thing"], 1).contains("unknown item"));
    assert!(place.failure(&["similar", "model.fastvae", "a"], 1).contains("give the id of one"));
}

#[test]
fn a_plan_that_does_not_fit_warns_and_refuses_nothing() {
    let place = Place::with_data();
    // 200 items x 65,536 are small, but a batch of 65,536 such rows is not; no machine of today has petabytes.
    let huge = [
        "plan",
        "data.tsv.zst",
        "--set",
        "latent=16384",
        "--set",
        "batch=65536",
        "--set",
        "latent_samples=1024",
    ];
    let output = place.fastvae(&huge).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.contains("are available"), "{error}");
}
