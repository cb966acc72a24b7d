//! Real data sets, read as published. Each test is skipped with a printed line where the files are absent.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use fastvae::data::{ReadOptions, Split, Statistics, TitleOptions, Titles, read, read_pair};
use fastvae::internals::data::{read_aligned, read_with_report};

/// The file `name`, under `FASTVAE_DATA` or beside the workspace.
fn data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("FASTVAE_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join(name);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
        return None;
    }
    Some(path)
}

fn table_1(statistics: &Statistics) -> (usize, usize, usize, String) {
    let percent = format!("{:.4}%", statistics.sparsity * 100.0);
    (statistics.users, statistics.items, statistics.interactions, percent)
}

#[test]
fn gowalla_is_the_papers() {
    let Some(path) = data("gowalla.mat") else { return };
    let rows = read(path, &ReadOptions::default()).unwrap();
    assert_eq!(table_1(&Statistics::of(&rows)), (29_858, 40_988, 1_027_464, "99.9160%".to_string()));
    assert!(rows.weights().is_none());
}

#[test]
fn the_ten_core_of_ml10m_is_the_papers() {
    let Some(path) = data("ml10m.mat") else { return };
    let whole = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!((whole.n_users(), whole.n_items(), whole.n_interactions()), (60_655, 8_939, 2_105_971));
    let core = read(&path, &ReadOptions { k_core: Some(10), ..ReadOptions::default() }).unwrap();
    let statistics = Statistics::of(&core);
    assert_eq!(table_1(&statistics), (47_292, 5_942, 2_001_164, "99.2879%".to_string()));
    let text = statistics.to_string();
    for number in ["47,292", "5,942", "2,001,164", "99.2879%"] {
        assert!(text.contains(number), "{text}");
    }
}

#[test]
fn a_published_split_has_the_users_and_items_of_both_files() {
    for (name, users, items, n_train, n_test) in [
        ("gowalla", 29_858, 40_988, 822_358, 205_106),
        ("ml10m", 47_292, 5_942, 1_601_363, 399_801),
        ("yelp2018", 31_668, 38_048, 1_237_259, 324_147),
    ] {
        let (Some(train), Some(test)) =
            (data(&format!("{name}.train.tsv.zst")), data(&format!("{name}.test.tsv.zst")))
        else {
            return;
        };
        let (train, test) = read_pair(train, test, &ReadOptions::default()).unwrap();
        for part in [&train, &test] {
            assert_eq!((part.n_users(), part.n_items()), (users, items), "{name}");
            assert!(part.user_ids().is_range() && part.item_ids().is_range());
        }
        assert_eq!((train.n_interactions(), test.n_interactions()), (n_train, n_test), "{name}");
    }
}

#[test]
fn a_test_file_aligns_with_training_data() {
    let (Some(train), Some(test)) = (data("ml10m.train.tsv.zst"), data("ml10m.test.tsv.zst")) else { return };
    let options = ReadOptions::default();
    let train = read(train, &options).unwrap();
    let (test, report) = read_aligned(test, &options, train.user_ids(), train.item_ids()).unwrap();
    assert_eq!((test.n_users(), test.n_items()), (train.n_users(), train.n_items()));
    assert_eq!(test.n_interactions() as u64 + report.unknown_users + report.unknown_items, 399_801);
}

#[test]
fn movietweetings_keeps_string_ids_and_times() {
    let Some(path) = data("movietweetings/ratings.dat") else { return };
    let (rows, report) = read_with_report(&path, &ReadOptions::default()).unwrap();
    assert_eq!((rows.n_users(), rows.n_items()), (21_081, 12_611));
    assert_eq!(rows.n_interactions() as u64 + report.duplicates, report.rows);
    assert_eq!(rows.n_interactions(), 141_695);
    assert!(rows.user_ids().is_integers() && !rows.item_ids().is_integers());
    assert!(rows.item_ids().position("0054890").is_some());
    assert!(rows.item_ids().position("54890").is_none());
    assert!(rows.weights().is_none() && rows.timestamps().is_some());
    assert!(Split::Temporal(0.8).apply(&rows, 0).is_ok());
    let liked = read(path, &ReadOptions { min_rating: Some(7.0), ..ReadOptions::default() }).unwrap();
    assert!(liked.n_interactions() < rows.n_interactions());
}

#[test]
fn bookcrossing_keeps_isbns() {
    let Some(path) = data("bookcrossing/ratings.csv.zst") else { return };
    let (rows, report) = read_with_report(path, &ReadOptions::default()).unwrap();
    assert_eq!(report.rows, 1_149_780);
    assert_eq!((rows.n_users(), rows.n_items()), (105_283, 340_556));
    assert!(rows.item_ids().position("034545104X").is_some());
    assert!(rows.weights().is_none());
}

#[test]
fn dirty_catalogues_give_titles() {
    let (Some(ratings), Some(books)) =
        (data("bookcrossing/ratings.csv.zst"), data("bookcrossing/books.tsv.zst"))
    else {
        return;
    };
    let rows = read(ratings, &ReadOptions::default()).unwrap();
    let (titles, report) = Titles::read(books, &TitleOptions::default(), rows.item_ids()).unwrap();
    let item = rows.item_ids().position("0195153448").unwrap();
    assert_eq!(titles.get(item), Some("Classical Mythology - Mark P. O. Morford (2002)"));
    assert!(report.titled > 260_000, "{report:?}");
    let (Some(ratings), Some(movies)) =
        (data("movietweetings/ratings.dat"), data("movietweetings/movies.dat"))
    else {
        return;
    };
    let rows = read(ratings, &ReadOptions::default()).unwrap();
    let (titles, report) = Titles::read(movies, &TitleOptions::default(), rows.item_ids()).unwrap();
    assert!(report.titled as f64 > 0.99 * rows.n_items() as f64, "{report:?}");
    assert_eq!(titles.len(), rows.n_items());
}
