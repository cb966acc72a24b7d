//! What trains: the cores, or a GPU where there is one.

use crate::Place;

/// A file that trains in no time.
fn data(place: &Place) {
    place.output(&["generate", "--users", "60", "--items", "40", "--interactions", "600", "-o", "data.tsv"]);
}

const SMALL: [&str; 8] = ["--epochs", "1", "--set", "hidden=8", "--set", "latent=4", "--set", "codewords=4"];

#[test]
fn the_doctor_says_what_there_is_and_why_a_gpu_is_not_used() {
    let place = Place::new();
    let found = place.json(&["doctor"]);
    assert!(found["threads"].as_u64().unwrap() > 0);
    let text = place.output(&["doctor"]);
    match found["obstacle"].as_str() {
        Some(obstacle) => assert!(text.contains(obstacle), "{text}"),
        None => assert!(text.contains("cuda:0"), "{text}"),
    }
}

#[test]
fn the_same_program_trains_without_a_gpu() {
    let place = Place::new();
    data(&place);
    let on_cores = [&["train", "data.tsv", "--device", "cpu"][..], &SMALL].concat();
    assert_eq!(place.json(&on_cores)["device"], "cpu");
    if place.json(&["doctor"])["obstacle"].is_null() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let auto = [&["train", "data.tsv"][..], &SMALL].concat();
    assert_eq!(place.json(&auto)["device"], "cpu");
    let asked = [&["train", "data.tsv", "--device", "cuda"][..], &SMALL].concat();
    let error = place.failure(&asked, 1);
    assert!(error.contains("doctor") && error.contains("--device cpu"), "{error}");
}

#[test]
fn a_device_that_does_not_exist_is_a_usage_error() {
    let place = Place::new();
    data(&place);
    let error = place.failure(&["train", "data.tsv", "--device", "tpu"], 2);
    assert!(error.contains("tpu") && error.contains("cuda:N"), "{error}");
}

#[test]
fn an_instruction_set_that_cannot_be_had_is_an_error() {
    let place = Place::new();
    let doctor =
        |simd: &str| place.fastvae(&["doctor", "--json"]).env("FASTVAE_SIMD", simd).output().unwrap();
    assert!(doctor("portable").status.success());
    let asked = doctor("avx9");
    let error = String::from_utf8_lossy(&asked.stderr);
    assert_eq!(asked.status.code(), Some(2), "{error}");
    assert!(
        error.contains("FASTVAE_SIMD") && error.contains("avx9") && error.contains("portable"),
        "{error}"
    );
}
