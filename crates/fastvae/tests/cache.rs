//! Caches of interactions: what is written comes back, mapped; what is damaged is refused.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastvae::data::{IdMap, Interactions, ReadOptions, Split, Titles, read, read_pair};
use fastvae::internals::data::{Cache, CacheWriter};
use fastvae::internals::data::{read_aligned, read_with_items, read_with_report};
use fastvae::internals::train::TrainingInternals;
use fastvae::train::{Control, TrainOptions};
use fastvae::{Config, Training};
use proptest::prelude::*;
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.fvcache");
    (folder, path)
}

/// Four users, five items; user `c` and item `nobody's` have no interaction.
fn example() -> (Interactions, Titles) {
    let data = Interactions::from_parts(
        vec![0, 2, 5, 5, 6],
        vec![0, 3, 1, 2, 3, 0],
        Some(vec![1.0, 2.0, 0.5, 1.0, 5.0, 1.0]),
        Some(vec![10, 20, 30, 40, 50, -60]),
        Arc::new(IdMap::from_strings(["a", "b", "c", "ß"]).unwrap()),
        Arc::new(IdMap::from_integers(vec![3, 7, 100, 4_000_000_000, 5_000_000_000]).unwrap()),
    )
    .unwrap();
    (data, Titles::new(["one", "", "Größe", "four", "five"]))
}

fn assert_same(a: &Interactions, b: &Interactions) {
    assert_eq!((a.offsets(), a.items()), (b.offsets(), b.items()));
    assert_eq!((a.weights(), a.timestamps()), (b.weights(), b.timestamps()));
    assert_eq!((a.user_ids(), a.item_ids()), (b.user_ids(), b.item_ids()));
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[test]
fn what_is_written_comes_back_mapped() {
    let (_folder, path) = place();
    let (data, titles) = example();
    Cache::write(&path, &data, Some(&titles)).unwrap();
    let cache = Cache::open(&path).unwrap();
    assert!(cache.interactions.is_mapped() && !data.is_mapped());
    assert_same(&cache.interactions, &data);
    assert_eq!(cache.titles, Some(titles));
    assert_eq!(cache.interactions.user_ids().position("ß"), Some(3));
    assert_eq!(cache.interactions.item_ids().position("4000000000"), Some(3));
    // A clone shares the map, and outlives the file's name.
    let clone = cache.interactions.clone();
    fs::remove_file(&path).unwrap();
    assert_eq!(clone.items().as_ptr(), cache.interactions.items().as_ptr());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rows_pushed_one_by_one_make_the_same_file(
        rows in prop::collection::vec(prop::collection::btree_set(0u32..40, 0..12), 1..9),
    ) {
        let (folder, path) = place();
        let (mut offsets, mut items) = (vec![0], Vec::new());
        let mut writer = CacheWriter::create(&path).unwrap();
        for row in &rows {
            let row: Vec<u32> = row.iter().copied().collect();
            writer.push_row(&row).unwrap();
            items.extend(row);
            offsets.push(items.len());
        }
        let (users, catalogue) = (IdMap::range(rows.len()), IdMap::range(40));
        writer.finish(&users, &catalogue, None).unwrap();
        let data =
            Interactions::from_parts(offsets, items, None, None, Arc::new(users), Arc::new(catalogue)).unwrap();
        let other = folder.path().join("other.fvcache");
        Cache::write(&other, &data, None).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), fs::read(&other).unwrap());
        assert_same(&Cache::open(&path).unwrap().interactions, &data);
    }
}

#[test]
fn a_writer_refuses_rows_that_no_reader_would_take() {
    let (folder, path) = place();
    let mut writer = CacheWriter::create(&path).unwrap();
    assert!(writer.push_row(&[2, 1]).unwrap_err().to_string().contains("row 0 is unsorted"));
    writer.push_row(&[1, 9]).unwrap();
    let error = writer.finish(&IdMap::range(1), &IdMap::range(9), None).unwrap_err().to_string();
    assert!(error.contains("items up to 9") && error.contains("9 items"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    let titles = Titles::new(["one"]);
    let error = Cache::write(&path, &example().0, Some(&titles)).unwrap_err().to_string();
    assert!(error.contains("1 titles for 5 items"), "{error}");
}

#[test]
fn every_cut_and_every_changed_byte_is_an_error() {
    let (_folder, path) = place();
    let (data, titles) = example();
    Cache::write(&path, &data, Some(&titles)).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("data.fvcache"), "{length}: {error}");
    }
    let mut n_refused = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x41;
        fs::write(&path, &bytes).unwrap();
        // What is not refused is the padding between sections, which nothing reads.
        match Cache::open(&path) {
            Ok(cache) => assert_same(&cache.interactions, &data),
            Err(error) => {
                n_refused += 1;
                assert!(error.to_string().contains("data.fvcache"), "{at}: {error}");
            }
        }
    }
    assert!(n_refused * 2 > whole.len(), "{n_refused} of {}", whole.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bytes_by_chance_are_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400), ends_well in any::<bool>(),
    ) {
        let (_folder, path) = place();
        bytes.splice(0..0, *b"FVCACHE\0\x01\0\0\0");
        if ends_well {
            bytes.extend(b"\0EHCACVF");
        }
        fs::write(&path, &bytes).unwrap();
        prop_assert!(Cache::open(&path).is_err());
    }
}

#[test]
fn a_newer_version_asks_for_an_upgrade() {
    let (_folder, path) = place();
    Cache::write(&path, &example().0, None).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    fs::write(&path, &bytes).unwrap();
    let error = Cache::open(&path).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("upgrade"), "{error}");
}

#[test]
fn a_cache_of_a_text_file_reads_as_the_file() {
    let (folder, path) = place();
    let text = folder.path().join("data.csv");
    write(&text, "user,item,weight,timestamp\nx,5,1,9\ny,7,2,8\nx,7,3,7\nz,5,1,6\n");
    let plain = read(&text, &ReadOptions::default()).unwrap();
    Cache::write(&path, &plain, None).unwrap();
    let (rows, report) = read_with_report(&path, &ReadOptions::default()).unwrap();
    assert_same(&rows, &plain);
    assert_eq!(report.rows, 4);
    let binarized = read(&path, &ReadOptions { binarize: true, ..ReadOptions::default() }).unwrap();
    assert!(binarized.is_mapped() && binarized.weights().is_none());
    let core = |path: &Path| read(path, &ReadOptions { k_core: Some(2), ..ReadOptions::default() });
    assert_eq!(core(&path).is_err(), core(&text).is_err());
    let error = read(&path, &ReadOptions { min_rating: Some(3.0), ..ReadOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("no ratings"), "{error}");
}

#[test]
fn a_known_test_file_leaves_the_cache_mapped_and_an_unknown_one_gives_what_text_gives() {
    let (folder, path) = place();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        write(&path, text);
        path
    };
    let train = file("train.csv", "user,item\nx,b\ny,a\nx,a\nz,c\n");
    Cache::write(&path, &read(&train, &ReadOptions::default()).unwrap(), None).unwrap();
    for (test, mapped) in [("user,item\nz,b\ny,c\n", true), ("user,item\nz,new\nnew,a\ny,b\n", false)] {
        let test = file("test.csv", test);
        let expected = read_pair(&train, &test, &ReadOptions::default()).unwrap();
        let found = read_pair(&path, &test, &ReadOptions::default()).unwrap();
        assert_eq!(found.0.is_mapped(), mapped);
        assert_same(&found.0, &expected.0);
        assert_same(&found.1, &expected.1);
        assert!(Arc::ptr_eq(found.0.item_ids(), found.1.item_ids()));
    }
}

#[test]
fn histories_in_a_cache_are_used_where_they_lie_if_the_catalogue_is_theirs() {
    let (_folder, path) = place();
    let (data, _) = example();
    Cache::write(&path, &data, None).unwrap();
    let options = ReadOptions::default();
    let (rows, _) = read_with_items(&path, &options, data.item_ids()).unwrap();
    assert!(rows.is_mapped() && Arc::ptr_eq(rows.item_ids(), data.item_ids()));
    let (rows, _) = read_aligned(&path, &options, data.user_ids(), data.item_ids()).unwrap();
    assert!(rows.is_mapped());
    let fewer = Arc::new(IdMap::from_integers(vec![3, 100]).unwrap());
    let (rows, report) = read_with_items(&path, &options, &fewer).unwrap();
    assert_eq!((rows.items(), report.unknown_items), (&[0, 1, 0][..], 3));
    assert!(!rows.is_mapped());
}

#[test]
fn titles_follow_the_items_that_remain() {
    let (folder, path) = place();
    let (data, titles) = example();
    Cache::write(&path, &data, Some(&titles)).unwrap();
    assert_eq!(Cache::titles_of(&path, data.item_ids()).unwrap(), Some(titles));
    let some = IdMap::from_integers(vec![4_000_000_000, 3, 8]).unwrap();
    assert_eq!(Cache::titles_of(&path, &some).unwrap(), Some(Titles::new(["four", "one", ""])));
    Cache::write(&path, &data, None).unwrap();
    assert_eq!(Cache::titles_of(&path, data.item_ids()).unwrap(), None);
    let text = folder.path().join("short");
    write(&text, "1");
    assert_eq!(Cache::titles_of(&text, data.item_ids()).unwrap(), None);
}

#[test]
fn a_compressed_cache_says_what_to_do() {
    let (folder, path) = place();
    Cache::write(&path, &example().0, None).unwrap();
    let packed = folder.path().join("data.fvcache.zst");
    fs::write(&packed, zstd::encode_all(&fs::read(&path).unwrap()[..], 3).unwrap()).unwrap();
    let error = read(&packed, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("decompress it first"), "{error}");
}

/// The promise of data larger than memory: without a validation part nothing of the cache is copied.
#[test]
fn training_without_validation_copies_nothing_and_learns_the_same() {
    let (_folder, path) = place();
    let options =
        fastvae::data::GenerateOptions { users: 60, items: 40, interactions: 600, ..Default::default() };
    let data = fastvae::data::generate(options).unwrap();
    Cache::write(&path, &data, None).unwrap();
    let config = Config { hidden: 8, latent: 8, codewords: 4, epochs: 2, ..Config::paper() };
    let mapped = Cache::open(&path).unwrap().interactions;
    let place = mapped.items().as_ptr();
    let mut from_cache = Training::new(mapped, &config, TrainOptions::default()).unwrap();
    assert!(from_cache.train_part().is_mapped());
    assert_eq!(from_cache.train_part().items().as_ptr(), place);
    let mut from_memory = Training::new(data.clone(), &config, TrainOptions::default()).unwrap();
    for run in [&mut from_cache, &mut from_memory] {
        run.run(|_| Control::Continue).unwrap();
    }
    assert_eq!(
        from_cache.parameters().unwrap().items.view().row(3),
        from_memory.parameters().unwrap().items.view().row(3)
    );
    // A split is other data, and must be a copy.
    let parts = Split::Ratio(0.8).apply(&Cache::open(&path).unwrap().interactions, 1).unwrap();
    assert!(!parts.train.is_mapped());
    assert_eq!(parts.train.items(), Split::Ratio(0.8).apply(&data, 1).unwrap().train.items());
}
