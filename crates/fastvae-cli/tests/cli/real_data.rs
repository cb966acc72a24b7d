//! Real files, where they are there: under `FASTVAE_DATA`, or `../shared/data` beside the repository.

use std::path::PathBuf;

use crate::Place;

/// The folder of real data; without it the test says so and does nothing.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("FASTVAE_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: there is no {}", folder.display());
    None
}

fn file(folder: &std::path::Path, name: &str) -> String {
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn the_rows_of_the_papers_table_come_out_exactly() {
    let Some(folder) = data() else { return };
    let place = Place::new();
    let gowalla = place.output(&["inspect", &file(&folder, "gowalla.mat")]);
    let row: Vec<&str> = gowalla.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["29,858", "40,988", "1,027,464", "99.9160%"]);
    let ml10m = place.output(&["inspect", &file(&folder, "ml10m.mat"), "--k-core", "10"]);
    let row: Vec<&str> = ml10m.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["47,292", "5,942", "2,001,164", "99.2879%"]);
}

#[test]
fn movietweetings_trains_with_titles() {
    let Some(folder) = data() else { return };
    let place = Place::new();
    let ratings = file(&folder, "movietweetings/ratings.dat");
    let movies = file(&folder, "movietweetings/movies.dat");
    let trained = place.json(&[
        "train",
        &ratings,
        "--titles",
        &movies,
        "-o",
        "m.fastvae",
        "--epochs",
        "2",
        "--preset",
        "paper",
        "--min-rating",
        "6",
        "--k-core",
        "3",
        "--split",
        "ratio:0.8",
    ]);
    assert!(trained["ndcg@50"].as_f64() > Some(0.0), "{trained}");
    let shown = place.output(&["inspect", "m.fastvae"]);
    assert!(!shown.contains("titles        0"), "{shown}");
}

#[test]
fn bookcrossing_reads_as_given() {
    let Some(folder) = data() else { return };
    let place = Place::new();
    let seen = place.json(&["inspect", &file(&folder, "bookcrossing/ratings.csv.zst")]);
    assert_eq!((seen["users"].as_u64(), seen["items"].as_u64()), (Some(105_283), Some(340_556)), "{seen}");
    // Ratings of 0 are implicit feedback: read, and no rows dropped for them.
    assert_eq!(seen["interactions"], 1_149_780, "{seen}");
    let trained = place.json(&[
        "train",
        &file(&folder, "bookcrossing/ratings.csv.zst"),
        "--titles",
        &file(&folder, "bookcrossing/books.tsv.zst"),
        "-o",
        "b.fastvae",
        "--k-core",
        "10",
        "--epochs",
        "1",
        "--preset",
        "paper",
        "--set",
        "negatives=100",
    ]);
    assert!(trained["n_items"].as_u64() > Some(1000), "{trained}");
    let near = place.json(&["recommend", "b.fastvae", "--history", "0439139597,0439064864,0439136350"]);
    assert!(near["items"][0]["title"].is_string(), "{near}");
}
