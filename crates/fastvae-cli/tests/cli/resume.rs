//! A run that was stopped anywhere goes on as if it had not been.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use fastvae::Model;
use fastvae::internals::model::ModelInternals;

use crate::Place;

/// A training of a second or two, which nothing ends before.
fn call(output: &'static str) -> Vec<&'static str> {
    vec![
        "train",
        "data.tsv.zst",
        "-o",
        output,
        // Data so small would do without a network.
        "--set",
        "ridge.weight=2",
        "--set",
        "hidden=128",
        "--set",
        "latent=64",
        "--set",
        "batch=16",
        "--set",
        "validate_every=3",
        "--set",
        "patience=1000",
        "--epochs",
        "150",
        "--log",
        "log.jsonl",
        "--checkpoint-every-epochs",
        "1",
    ]
}

fn start(place: &Place, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fastvae"))
        .current_dir(place.0.path())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
}

fn parameters(path: &Path) -> Vec<u32> {
    let model = Model::load(path).unwrap();
    let network = model.network().expect("an autoencoder was trained");
    network
        .tables
        .into_iter()
        .flat_map(|(_, table)| table.data().iter().map(|value| value.to_bits()))
        .collect()
}

/// Waits for the first epoch, and then for a moment that is another one each time.
fn somewhere_in_the_run(place: &Place) {
    let start = Instant::now();
    while std::fs::metadata(place.path("log.jsonl")).map_or(0, |m| m.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "no epoch ended");
        sleep(Duration::from_millis(2));
    }
    let now = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    sleep(Duration::from_millis(u64::from(now.subsec_micros() % 300)));
}

/// The log without what a clock decides.
fn losses(place: &Place) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(place.path("log.jsonl")).unwrap();
    text.lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            (record["epoch"].as_u64().unwrap(), record["loss"].as_f64().unwrap())
        })
        .collect()
}

#[test]
fn a_run_that_was_interrupted_or_killed_goes_on_bit_for_bit() {
    let place = Place::with_data();
    place.output(&call("whole.fastvae"));
    let (whole, log) = (parameters(&place.path("whole.fastvae")), losses(&place));

    for (how, code) in [("-INT", Some(130)), ("-KILL", None)] {
        std::fs::remove_file(place.path("log.jsonl")).unwrap();
        let child = start(&place, &call("model.fastvae"));
        somewhere_in_the_run(&place);
        signal(&child, how);
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{how}: {error}");
        assert!(place.path("model.fastvae.checkpoint").exists() && !place.path("model.fastvae").exists());
        if code.is_some() {
            assert!(
                error.contains("Go on with:") && error.contains("--checkpoint-every-epochs 1 --resume"),
                "{error}"
            );
        }
        let mut resumed = call("model.fastvae");
        resumed.extend(["--resume", "--threads", "1"]);
        place.output(&resumed);
        assert!(parameters(&place.path("model.fastvae")) == whole, "{how}: other parameters");
        assert_eq!(losses(&place), log, "{how}: another history");
        assert!(!place.path("model.fastvae.checkpoint").exists());
        std::fs::remove_file(place.path("model.fastvae")).unwrap();
    }
}

#[test]
fn a_run_does_not_resume_with_other_settings() {
    let place = Place::with_data();
    let _ = std::fs::remove_file(place.path("log.jsonl"));
    let child = start(&place, &call("model.fastvae"));
    somewhere_in_the_run(&place);
    signal(&child, "-INT");
    child.wait_with_output().unwrap();
    let mut other = call("model.fastvae");
    other.extend(["--resume", "--set", "negatives=7"]);
    let error = place.failure(&other, 2);
    assert!(error.contains("negatives") && error.contains("the interrupted run had"), "{error}");
}

#[test]
fn a_comparison_that_was_interrupted_or_killed_keeps_what_is_done() {
    let place = Place::with_data();
    let call =
        ["compare", "data.tsv.zst", "--models", "popularity,wrmf,mult-vae", "--folds", "2", "--at", "10"];
    let runs = place.path("comparison").join("runs");
    let done = || -> Vec<(String, SystemTime)> {
        let entries = std::fs::read_dir(&runs).into_iter().flatten().flatten();
        let results = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "json"));
        let mut results: Vec<_> = results
            .map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                (name, entry.metadata().unwrap().modified().unwrap())
            })
            .collect();
        results.sort();
        results
    };
    for (how, code, n) in [("-INT", Some(130), 2), ("-KILL", None, 4)] {
        let child = start(&place, &call);
        let begun = Instant::now();
        // The autoencoder of a fold takes longest and is under way when the others of the fold are done.
        while done().len() < n {
            assert!(begun.elapsed() < Duration::from_secs(60), "no run ended");
            sleep(Duration::from_millis(2));
        }
        signal(&child, how);
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{how}: {error}");
        if code.is_some() {
            assert!(error.contains("goes on from the") && error.contains("runs that are done"), "{error}");
        }
    }
    let before = done();
    assert!((4..6).contains(&before.len()), "{before:?}");
    assert!(place.output(&call).contains("mult-vae"));
    let after = done();
    assert_eq!(after.len(), 6);
    assert!(before.iter().all(|run| after.contains(run)), "{before:?} {after:?}");
}
