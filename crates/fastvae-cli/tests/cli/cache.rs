//! Binary caches: every command takes one, and data larger than memory trains.

use std::path::Path;
use std::process::Command;

use fastvae::data::IdMap;
use fastvae::internals::data::CacheWriter;

use crate::Place;

#[test]
fn a_cache_trains_as_its_text_file_and_brings_its_titles() {
    let place = Place::with_data();
    let made = place.json(&["prepare", "data.tsv.zst", "-o", "data.fvcache", "--titles", "titles.csv"]);
    let seen = place.json(&["inspect", "data.tsv.zst"]);
    for (of_cache, of_text) in
        [("n_users", "users"), ("n_items", "items"), ("n_interactions", "interactions")]
    {
        assert_eq!(made[of_cache], seen[of_text], "{of_cache}");
    }
    let again = place.json(&["inspect", "data.fvcache"]);
    assert_eq!(again["popularity_gini"], seen["popularity_gini"]);
    let from_text = place.json(&Place::train(&[]));
    let mut arguments = Place::train(&[]);
    arguments[1] = "data.fvcache";
    arguments.retain(|word| !["--titles", "titles.csv"].contains(word));
    let from_cache = place.json(&arguments);
    assert_eq!(from_cache["ndcg@10"], from_text["ndcg@10"]);
    assert_eq!(from_cache["loss"], from_text["loss"]);
    assert!(place.json(&["inspect", "model.fastvae"])["titles"].as_bool().unwrap());
    let all = place.output(&[
        "recommend",
        "model.fastvae",
        "--users",
        "all",
        "--data",
        "data.fvcache",
        "-o",
        "lists.csv",
    ]);
    assert!(all.is_empty() || place.path("lists.csv").exists(), "{all}");
    assert!(place.json(&["plan", "data.fvcache", "--no-calibration"])["peak_bytes"].is_u64());
}

#[test]
fn a_prepared_split_knows_the_test_file() {
    let place = Place::new();
    std::fs::write(place.path("train.tsv"), "x\ta\nx\tb\ny\tb\ny\tc\n").unwrap();
    std::fs::write(place.path("test.tsv"), "x\tc\ny\tnew\n").unwrap();
    let made =
        place.json(&["prepare", "train.tsv", "-o", "train.fvcache", "--test", "test.tsv", "--no-header"]);
    assert_eq!((made["n_items"].as_u64(), made["n_interactions"].as_u64()), (Some(4), Some(4)));
}

#[test]
fn generate_writes_the_same_interactions_into_a_cache() {
    let place = Place::with_data();
    let sizes = ["--users", "400", "--items", "200", "--interactions", "8000", "--genres", "8"];
    place.output(&[&["generate", "-o", "data.fvcache"], &sizes[..]].concat());
    let (text, cache) = (place.json(&["inspect", "data.tsv.zst"]), place.json(&["inspect", "data.fvcache"]));
    assert_eq!(text["interactions"], cache["interactions"]);
    assert_eq!(text["history"], cache["history"]);
}

#[test]
fn a_damaged_cache_is_named_with_the_remedy() {
    let place = Place::with_data();
    place.output(&["prepare", "data.tsv.zst", "-o", "data.fvcache"]);
    let whole = std::fs::read(place.path("data.fvcache")).unwrap();
    std::fs::write(place.path("data.fvcache"), &whole[..whole.len() / 2]).unwrap();
    let error = place.failure(&["train", "data.fvcache"], 1);
    assert!(
        error.contains("data.fvcache") && error.contains("cut off") && error.contains("prepare"),
        "{error}"
    );
}

/// Under a limit on memory of its own, below the size of the interactions, a process can train from a cache, whose
/// pages are the file's. The same interactions as text do not fit, which shows that the limit bites.
#[cfg(target_os = "linux")]
#[test]
fn interactions_larger_than_the_memory_limit_train_from_a_cache() {
    const LIMIT_KIB: usize = 48 << 10;
    let (n_users, n_items, row) = (16_000, 2_000, 1_000);
    let place = Place::new();
    let mut cache = CacheWriter::create(place.path("large.fvcache")).unwrap();
    let mut text = String::from("%%MatrixMarket matrix coordinate pattern general\n");
    text.push_str(&format!("{n_users} {n_items} {}\n", n_users * row));
    for user in 0..n_users as u32 {
        let items: Vec<u32> = (0..row as u32).map(|at| 2 * at + user % 2).collect();
        cache.push_row(&items).unwrap();
        items.iter().for_each(|item| text.push_str(&format!("{} {}\n", user + 1, item + 1)));
    }
    cache.finish(&IdMap::range(n_users), &IdMap::range(n_items), None).unwrap();
    std::fs::write(place.path("large.mtx"), text).unwrap();
    let size = std::fs::metadata(place.path("large.fvcache")).unwrap().len() as usize;
    assert!(size > LIMIT_KIB << 10, "{size} bytes would fit the limit");

    let limited = |data: &str| -> std::process::Output {
        let train = "train DATA --split none --preset paper --epochs 1 --json --threads 1 --set hidden=8 \
                     --set latent=8 --set negatives=10 --set codewords=4 --set batch=16";
        let train = train.replace("DATA", data);
        // RLIMIT_DATA counts the private memory of a process, not the pages of mapped files.
        let program = Path::new(env!("CARGO_BIN_EXE_fastvae")).display().to_string();
        Command::new("sh")
            .args(["-c", &format!("ulimit -d {LIMIT_KIB} && exec '{program}' {train}")])
            .current_dir(place.path(""))
            .output()
            .unwrap()
    };
    let from_cache = limited("large.fvcache");
    assert!(from_cache.status.success(), "{}", String::from_utf8_lossy(&from_cache.stderr));
    let report: serde_json::Value = serde_json::from_slice(&from_cache.stdout).unwrap();
    assert_eq!(report["n_train_interactions"].as_u64(), Some((n_users * row) as u64));
    assert!(report["loss"].as_f64().unwrap().is_finite());
    let from_text = limited("large.mtx");
    assert!(!from_text.status.success(), "the limit does not hold what it should");
}
