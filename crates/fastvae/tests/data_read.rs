//! Every text format and every way a text file can be wrong.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;

use fastvae::data::{Column, Format, IdMap, Interactions, ReadOptions, read, read_pair};
use fastvae::internals::data::{read_aligned, read_with_items, read_with_report};
use proptest::prelude::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn rows_of(name: &str, bytes: impl AsRef<[u8]>, options: &ReadOptions) -> Interactions {
    read(Folder::new().file(name, bytes), options).unwrap()
}

fn error_of(name: &str, bytes: impl AsRef<[u8]>, options: &ReadOptions) -> String {
    read(Folder::new().file(name, bytes), options).unwrap_err().to_string()
}

/// `user item` or `user item weight`, by name, in the order of the rows.
fn pairs(rows: &Interactions) -> Vec<String> {
    let mut all = Vec::new();
    for user in 0..rows.n_users() {
        let row = rows.row(user);
        for (at, &item) in row.items.iter().enumerate() {
            let weight = row.weights.map(|weights| format!(" {}", weights[at])).unwrap_or_default();
            let names = (rows.user_ids().name(user as u32), rows.item_ids().name(item));
            all.push(format!("{} {}{weight}", names.0, names.1));
        }
    }
    all
}

#[track_caller]
fn assert_says(error: &str, parts: &[&str]) {
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

fn auto() -> ReadOptions {
    ReadOptions::default()
}

#[test]
fn the_delimiter_is_detected() {
    for delimiter in ["\t", ",", ";", "|", " ", "  "] {
        let text = format!("1{delimiter}10\n2{delimiter}20\n1{delimiter}20\n");
        for name in ["a.txt", "a.csv", "a"] {
            assert_eq!(pairs(&rows_of(name, &text, &auto())), ["1 10", "1 20", "2 20"], "{delimiter:?}");
        }
    }
}

#[test]
fn the_header_is_detected() {
    for text in [
        "user,item\n1,10\n2,20\n",
        "item_id,x,userId\n10,a,1\n20,b,2\n",
        "\"user_id\",\"ISBN\"\n1,10\n2,20\n",
        "1,10\n2,20\n",
        "\u{feff}user,item\r\n1,10\r\n2,20\r\n",
        "user,item\n\n1,10\n\n2,20",
    ] {
        assert_eq!(pairs(&rows_of("a.csv", text, &auto())), ["1 10", "2 20"], "{text:?}");
    }
    let words = "alice,dune\nbob,emma\n";
    assert_eq!(pairs(&rows_of("a.csv", words, &auto())), ["alice dune", "bob emma"]);
    let told = ReadOptions {
        has_header: Some(true),
        user: Some(Column::Number(1)),
        item: Some(Column::Number(0)),
        ..auto()
    };
    assert_eq!(pairs(&rows_of("a.csv", "b,a\n10,1\n20,2\n", &told)), ["1 10", "2 20"]);
}

#[test]
fn columns_are_found_by_name_and_number() {
    let text = "a,b,c\n10,x,1\n20,y,2\n";
    for (user, item) in [("c", "a"), ("2", "0")] {
        let options = ReadOptions {
            user: Some(user.parse().unwrap()),
            item: Some(item.parse().unwrap()),
            has_header: Some(true),
            ..auto()
        };
        assert_eq!(pairs(&rows_of("a.csv", text, &options)), ["1 10", "2 20"]);
    }
}

#[test]
fn a_rating_filters_and_a_weight_weighs() {
    let rated = "user,item,rating\n1,10,5\n1,11,2\n2,10,3.5\n";
    assert_eq!(pairs(&rows_of("a.csv", rated, &auto())), ["1 10", "1 11", "2 10"]);
    let liked = ReadOptions { min_rating: Some(3.5), ..auto() };
    let (rows, report) = read_with_report(Folder::new().file("a.csv", rated), &liked).unwrap();
    assert_eq!(pairs(&rows), ["1 10", "2 10"]);
    assert_eq!(rows.n_items(), 1, "an item without a row that stays is not in the catalogue");
    assert_eq!((report.rows, report.below_min_rating), (3, 1));

    let weighted = "user,item,plays\n1,10,5\n1,10,2\n2,10,0\n2,11,1\n3,11,-4\n";
    let (rows, report) = read_with_report(Folder::new().file("a.csv", weighted), &auto()).unwrap();
    assert_eq!(pairs(&rows), ["1 10 7", "2 11 1"]);
    assert_eq!((report.duplicates, report.non_positive_weights), (1, 2));
    let flat = ReadOptions { binarize: true, ..auto() };
    assert_eq!(pairs(&rows_of("a.csv", weighted, &flat)), ["1 10", "2 11"]);
    assert_eq!(pairs(&rows_of("a.csv", "user,item,weight\n1,2,1\n2,2,1.0\n", &auto())), ["1 2", "2 2"]);
    let option = ReadOptions { weight: Some(Column::Number(2)), ..auto() };
    assert_eq!(pairs(&rows_of("a.csv", "1,2,3\n2,2,1\n", &option)), ["1 2 3", "2 2 1"]);
}

#[test]
fn times_are_read_with_and_without_a_header() {
    for text in [
        "user,item,timestamp\n1,10,1500000000\n2,20,1600000000\n",
        "1,10,1500000000\n2,20,1600000000\n",
        "1\t10\t4\t1500000000\n2\t20\t5\t1600000000\n",
        "user;item;date\n1;10;2017-07-14T02:40:00Z\n2;20;2020-09-13 12:26:40\n",
    ] {
        let rows = rows_of("a.txt", text, &auto());
        assert_eq!(rows.timestamps(), Some(&[1_500_000_000, 1_600_000_000][..]), "{text}");
    }
}

#[test]
fn quoted_fields_may_hold_anything() {
    let text = "user,item\n\"a,b\",\"say \"\"hi\"\"\"\n\"two\nlines\",x\nplain,5\" disk\n";
    let rows = rows_of("a.csv", text, &auto());
    assert_eq!(pairs(&rows), ["a,b say \"hi\"", "two\nlines x", "plain 5\" disk"]);
}

#[test]
fn quotes_in_the_fast_path_take_the_long_way() {
    let rows = rows_of("a.csv", "1,2\n\"3\",4\n5,\"x,\ny\"\n7,8\n", &auto());
    assert_eq!(pairs(&rows), ["1 2", "3 4", "5 x,\ny", "7 8"]);
}

#[test]
fn movielens_recbole_and_lightgcn_are_read() {
    let rows = rows_of("ratings.dat", "1::0054890::9::1381945744\n2::10::8::1381945745\n", &auto());
    assert_eq!(pairs(&rows), ["1 0054890", "2 10"]);
    assert_eq!(rows.timestamps(), Some(&[1_381_945_744, 1_381_945_745][..]));

    let text =
        "user_id:token\titem_id:token\trating:float\ttimestamp:float\nu1\ti1\t4.0\t1.5e9\nu2\ti2\t1.0\t2e9\n";
    let rows = rows_of("ml.inter", text, &auto());
    assert_eq!(pairs(&rows), ["u1 i1", "u2 i2"]);
    let liked = ReadOptions { min_rating: Some(3.0), ..auto() };
    assert_says(&error_of("ml.inter", text, &liked), &["one user", "`u1`", "--user-col"]);

    let rows = rows_of("train.txt", "0 1 2 3\n1\n2 3 \n", &auto());
    assert_eq!(pairs(&rows), ["0 1", "0 2", "0 3", "2 3"]);
    assert_eq!(rows.n_users(), 3);
    assert_says(&error_of("train.txt", "0 1 2 3\n1 3\n", &liked), &["no ratings", "--min-rating"]);
}

#[test]
fn matrix_market_counts_from_one() {
    let real = "%%MatrixMarket matrix coordinate real general\n% a comment\n3 4 3\n1 1 1\n3 4 2.5\n2 1 0\n";
    let (rows, report) = read_with_report(Folder::new().file("m.mtx", real), &auto()).unwrap();
    assert_eq!(pairs(&rows), ["0 0 1", "2 3 2.5"]);
    assert_eq!((rows.n_users(), rows.n_items(), report.non_positive_weights), (3, 4, 1));
    let pattern = "%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 2\n2 1\n";
    assert_eq!(pairs(&rows_of("m.mtx", pattern, &auto())), ["0 1", "1 0"]);
    let liked = ReadOptions { min_rating: Some(2.0), ..auto() };
    assert_eq!(pairs(&rows_of("m.mtx", real, &liked)), ["2 3"]);

    let broken = |text: &str| error_of("m.mtx", text, &auto());
    assert_says(&broken("%%MatrixMarket matrix array real general\n2 2\n1\n"), &["m.mtx:1:", "coordinate"]);
    assert_says(
        &broken("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n3 1\n"),
        &[":3:", "`3 1`", "2 x 2"],
    );
    assert_says(&broken("%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n"), &["after 1 of 2"]);
    assert_says(&broken("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1\n"), &[":3:", "no value"]);
    assert_says(&broken("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 nan\n"), &[":3:", "NaN"]);
    assert_says(&broken("%%MatrixMarket matrix coordinate real general\n5000000000 2 0\n"), &["32-bit"]);
}

#[test]
fn compressed_files_are_told_by_their_bytes() {
    use std::io::Write;
    let text: String = (0..50_000).map(|row| format!("{}\t{}\n", row % 500, row * 7 % 991)).collect();
    let plain = rows_of("a.tsv", &text, &auto());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::stream::encode_all(text.as_bytes(), 3).unwrap();
    for (name, bytes) in [("a.tsv.gz", &gzip), ("a.tsv.zst", &zstd), ("a", &gzip), ("a", &zstd)] {
        assert_eq!(rows_of(name, bytes, &auto()).items(), plain.items());
        let cut = error_of(name, &bytes[..bytes.len() * 2 / 3], &auto());
        assert_says(&cut, &[name, "compressed data end too early", "again"]);
    }
    let mut damaged = gzip;
    let checksum = damaged.len() - 6;
    damaged[checksum] ^= 1;
    assert_says(&error_of("a.gz", damaged, &auto()), &["compressed data are damaged"]);
}

#[test]
fn what_is_not_a_file_with_rows_is_refused() {
    let folder = Folder::new();
    let error = read(folder.0.path().join("no.csv"), &auto()).unwrap_err().to_string();
    assert_says(&error, &["no.csv", "no such file"]);
    let error = read(folder.0.path(), &auto()).unwrap_err().to_string();
    assert_says(&error, &["folder", "one of the files"]);
    assert_says(&error_of("a.csv", "", &auto()), &["a.csv: the file is empty"]);
    assert_says(&error_of("a.csv", "\n\n", &auto()), &["empty"]);
    assert_says(&error_of("a.csv", "user,item\n", &auto()), &["no interactions"]);
    assert_says(&error_of("a.csv", "1,2\n1,3\n", &auto()), &["all 2 rows", "one user, `1`", "--user-col"]);
    assert_says(&error_of("a.csv", "12\n13\n", &auto()), &["a.csv:1:", "`12` has one column", "--delimiter"]);
    assert_says(&error_of("a.csv", b"\xff\xfe1\0,\0", &auto()), &["UTF-16", "iconv"]);
    let liked = ReadOptions { min_rating: Some(9.0), ..auto() };
    assert_says(&error_of("a.csv", "1,2,3\n2,2,4\n", &liked), &["all 2 ratings are below 9", "--min-rating"]);
}

#[test]
fn broken_lines_are_named() {
    let error = |text: &str| error_of("a.csv", text, &auto());
    assert_says(&error("user,item\n1,2\n3\n"), &["a.csv:3:", "1 fields", "has 2"]);
    assert_says(&error("user,item\n1,2\n3,4,5\n"), &["a.csv:3:", "3 fields", "quote", "--delimiter"]);
    assert_says(&error("user,item\n1,2\n,4\n"), &["a.csv:3:", "user identifier is empty", "--user-col"]);
    assert_says(&error("user,item\n1,2\n3,\n"), &["a.csv:3:", "item identifier is empty", "--item-col"]);
    assert_says(&error("user,item\n1,2\n\"3,4\n5,6\n"), &["a.csv:3:", "never closed"]);
    assert_says(&error("user,item,weight\n1,2,nan\n2,2,1\n"), &["a.csv:2:", "weight is NaN", "--weight-col"]);
    assert_says(&error("user,item,weight\n1,2,inf\n2,2,1\n"), &["a.csv:2:", "weight is inf"]);
    assert_says(
        &error("user,item,weight\n1,2,much\n2,2,1\n"),
        &["a.csv:2:", "weight `much` is not a number"],
    );
    assert_says(
        &error("user,item,time\n1,2,5\n2,2,soon\n"),
        &["a.csv:3:", "`soon` is not a time", "--time-col"],
    );
    let latin = error_of("a.csv", b"user,item\n1,caf\xe9\n2,x\n", &auto());
    assert_says(&latin, &["a.csv:2:", "`caf\\xe9` is not UTF-8", "iconv"]);
    let liked = ReadOptions { min_rating: Some(1.0), ..auto() };
    assert_says(&error_of("a.csv", "user,item,rating\n1,2,NaN\n", &liked), &["a.csv:2:", "rating is NaN"]);
}

#[test]
fn unknown_columns_list_those_found() {
    let text = "reader,novel,n\n1,2,3\n2,2,3\n";
    assert_says(
        &error_of("a.csv", text, &auto()),
        &["no user column", "`reader`, `novel`, `n`", "--user-col"],
    );
    let named = |user: &str, item: &str| ReadOptions {
        user: Some(user.parse().unwrap()),
        item: Some(item.parse().unwrap()),
        ..auto()
    };
    assert_eq!(pairs(&rows_of("a.csv", text, &named("reader", "novel"))), ["1 2", "2 2"]);
    let error = error_of("a.csv", text, &named("reader", "book"));
    assert_says(&error, &["no item column `book`", "`reader`, `novel`, `n`", "--item-col"]);
    assert_says(&error_of("a.csv", text, &named("0", "7")), &["no item column 7 among 3", "from 0 to 2"]);
    assert_says(&error_of("a.csv", text, &named("1", "1")), &["both read from column 1"]);
    let bare = ReadOptions { has_header: Some(false), ..named("reader", "1") };
    assert_says(&error_of("a.csv", text, &bare), &["`reader`", "no header", "--no-header"]);
    let liked = ReadOptions { min_rating: Some(1.0), ..auto() };
    assert_says(&error_of("a.csv", "user,item\n1,2\n", &liked), &["no rating column", "--rating-col"]);
    assert_says(&error_of("a.csv", "1,2\n", &liked), &["no rating column", "--rating-col"]);
}

#[test]
fn test_files_align_with_training_data() {
    let folder = Folder::new();
    let train = read(folder.file("train.tsv", "5\t50\n7\t60\n7\t50\n"), &auto()).unwrap();
    let test = folder.file("test.tsv", "7\t60\n9\t60\n7\t99\n5\t60\n");
    let (rows, report) = read_aligned(&test, &auto(), train.user_ids(), train.item_ids()).unwrap();
    assert_eq!(pairs(&rows), ["5 60", "7 60"]);
    assert_eq!((report.unknown_users, report.unknown_items), (1, 1));
    assert!(Arc::ptr_eq(rows.item_ids(), train.item_ids()));

    let (rows, report) = read_with_items(&test, &auto(), train.item_ids()).unwrap();
    assert_eq!(pairs(&rows), ["5 60", "7 60", "9 60"]);
    assert_eq!(report.unknown_items, 1);

    let strangers = folder.file("x.tsv", "a\tb\n");
    let error = read_aligned(strangers, &auto(), train.user_ids(), train.item_ids()).unwrap_err().to_string();
    assert_says(&error, &["none of 1 rows is known", "1 have an unknown user", "--user-col"]);
}

#[test]
fn a_pair_of_files_shares_its_identifiers() {
    let folder = Folder::new();
    let train = folder.file("train.tsv", "0\t2\n1\t0\n");
    let test = folder.file("test.tsv", "1\t1\n0\t3\n");
    let (a, b) = read_pair(&train, &test, &auto()).unwrap();
    assert_eq!((a.n_items(), b.n_items()), (4, 4));
    assert!(Arc::ptr_eq(a.item_ids(), b.item_ids()) && a.item_ids().is_range());
    assert_eq!((pairs(&a), pairs(&b)), (vec!["0 2".into(), "1 0".into()], vec!["0 3".into(), "1 1".into()]));
    let error = read_pair(&train, &test, &ReadOptions { k_core: Some(2), ..auto() }).unwrap_err().to_string();
    assert_says(&error, &["k_core", "--k-core"]);
}

#[test]
fn a_core_is_taken_on_request() {
    let options = ReadOptions { k_core: Some(2), ..auto() };
    let rows = rows_of("a.csv", "a,x\na,y\nb,x\nb,y\nc,x\nd,z\n", &options);
    assert_eq!(pairs(&rows), ["a x", "a y", "b x", "b y"]);
    assert_says(&error_of("a.csv", "a,x\nb,y\n", &options), &["2-core", "--k-core"]);
}

#[test]
fn the_format_can_be_told() {
    let options = ReadOptions { format: Some(Format::LightGcn), ..auto() };
    assert_eq!(pairs(&rows_of("a.csv", "0 1 2\n1 2 3\n", &options)), ["0 1", "0 2", "1 2", "1 3"]);
    let options = ReadOptions { delimiter: Some(b';'), ..auto() };
    assert_eq!(pairs(&rows_of("a.csv", "a,b;x\nc,d;y\n", &options)), ["a,b x", "c,d y"]);
}

fn identifier() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9 ,;\"\n\tß]{1,6}",
        any::<i64>().prop_map(|id| id.to_string()),
        (0u32..50).prop_map(|id| id.to_string()),
        "[0-9]{1,4}",
    ]
    // Blanks around an integer are not part of it, and a carriage return at the end of a line is its end.
    .prop_filter("blanks around", |id| id.trim() == id && !id.is_empty())
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        triples in prop::collection::vec((identifier(), identifier(), 1u16..500), 1..40), comma: bool,
    ) {
        let mut users = fastvae::internals::data::IdMapBuilder::new();
        let mut items = fastvae::internals::data::IdMapBuilder::new();
        let mut builder = fastvae::data::InteractionsBuilder::new();
        for (user, item, weight) in &triples {
            let (user, item) = (users.intern(user).unwrap(), items.intern(item).unwrap());
            builder.push(user, item, Some(f32::from(*weight) / 4.0), Some(i64::from(*weight)));
        }
        // Positions that sorting would move are wrong names here but still a valid matrix.
        let (users, items): (Arc<IdMap>, Arc<IdMap>) = (Arc::new(users.finish().0), Arc::new(items.finish().0));
        prop_assume!(users.len() > 1);
        let (written, _) = builder.build(users, items).unwrap();
        let folder = Folder::new();
        let path = folder.0.path().join(if comma { "a.csv" } else { "a.tsv.zst" });
        fastvae::internals::data::write_interactions(&path, &written).unwrap();
        let again = read(&path, &auto()).unwrap();
        let sorted = |rows: &Interactions| {
            let mut all = pairs(rows);
            all.sort();
            all
        };
        prop_assert_eq!(sorted(&written), sorted(&again));
        let sorted_times = |rows: &Interactions| {
            let mut times = rows.timestamps().unwrap().to_vec();
            times.sort();
            times
        };
        prop_assert_eq!(sorted_times(&written), sorted_times(&again));
    }

    #[test]
    fn fields_are_cut_as_the_csv_crate_cuts_them(
        records in prop::collection::vec(prop::collection::vec("[ab0-9 ,\"\n]{1,5}", 2), 1..20),
    ) {
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
        for record in &records {
            writer.write_record(record).unwrap();
        }
        let text = writer.into_inner().unwrap();
        // Said so: some of what comes out reads like items with titles.
        let (user, item) = (Some(Column::Number(0)), Some(Column::Number(1)));
        let options = ReadOptions { has_header: Some(false), delimiter: Some(b','), user, item, ..auto() };
        let folder = Folder::new();
        let path = folder.file("a.csv", text);
        let expected: std::collections::BTreeSet<String> = records
            .iter()
            .map(|record| record.iter().map(|id| integer_or_exact(id)).collect::<Vec<_>>().join(" "))
            .collect();
        let items = Arc::new(IdMap::from_strings(
            records.iter().map(|r| integer_or_exact(&r[1])).collect::<std::collections::BTreeSet<_>>(),
        ).unwrap());
        let (rows, _) = read_with_items(path, &options, &items).unwrap();
        prop_assert_eq!(pairs(&rows).into_iter().collect::<std::collections::BTreeSet<_>>(), expected);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), which in 0usize..9) {
        let folder = Folder::new();
        let path = folder.file("x", &bytes);
        let _ = read(&path, &auto());
        let _ = read(&path, &ReadOptions { format: Some(Format::ALL[which]), ..auto() });
    }
}

fn integer_or_exact(id: &str) -> String {
    let trimmed = id.trim_ascii();
    match trimmed.parse::<i64>() {
        Ok(value) if value.to_string() == trimmed => trimmed.to_string(),
        _ => id.to_string(),
    }
}

#[test]
fn files_of_titles_are_no_interactions_unless_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let titles = "1::Toy Story (1995)::Comedy\n2::Heat (1995)::Crime\n3::Casino::Drama\n4::Up There::\n5::In Here::Drama\n";
    let movies = write("movies.dat", titles);
    let refused = read(&movies, &ReadOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("movies.dat:1") && refused.contains("Toy Story (1995)"), "{refused}");
    assert!(refused.contains("--titles") && refused.contains("--user-col 0 --item-col 1"), "{refused}");
    let (user, item) = (Some(Column::Number(0)), Some(Column::Number(1)));
    assert_eq!(read(&movies, &ReadOptions { user, item, ..ReadOptions::default() }).unwrap().n_items(), 5);
    // Names of several words that users touch more than once, or with a rating, are items.
    let plays = write("plays.tsv", "a\tThe Who\na\tPink Floyd\nb\tThe Who\nc\tNew Order\nd\tThe Cure\n");
    assert_eq!(read(plays, &ReadOptions::default()).unwrap().n_interactions(), 5);
    let rated = write(
        "rated.tsv",
        "a\tThe Who\t1\nb\tPink Floyd\t2\nc\tThe Who\t1\nd\tNew Order\t5\ne\tThe Cure\t3\n",
    );
    assert_eq!(read(rated, &ReadOptions::default()).unwrap().n_items(), 4);
}
