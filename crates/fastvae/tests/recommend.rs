//! Recommendations: as many as asked, only what is allowed, best first.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;

use fastvae::Model;
use fastvae::config::Config;
use fastvae::data::{IdMap, ItemId, Titles};
use fastvae::eval::History;
use fastvae::internals::model::ModelInternals;
use fastvae::internals::network::{Parameters, encode};
use fastvae::internals::recommend::{Layout, RecommendationWriter};
use fastvae::recommend::{ListOptions, Question, Request, Scored};
use proptest::prelude::*;

const N_ITEMS: usize = 700;

fn model(item_bias: bool) -> Model {
    let config = Config { hidden: 16, latent: 10, item_bias, ..Config::default() };
    let mut parameters = Parameters::random(&config, N_ITEMS);
    if let Some(bias) = &mut parameters.item_bias {
        bias.row_mut(0).iter_mut().take(N_ITEMS).enumerate().for_each(|(i, b)| *b = (i % 5) as f32 * 0.1);
    }
    // Equal vectors give ties.
    for item in 600..650 {
        let copy = parameters.items.row(599).to_vec();
        parameters.items.row_mut(item).copy_from_slice(&copy);
    }
    let ids = Arc::new(IdMap::from_strings((0..N_ITEMS).map(|i| format!("i{i}"))).unwrap());
    Model::of_parameters(&config, parameters, ids, vec![1; N_ITEMS]).unwrap()
}

/// The best `n`, with what `change` sets beside.
fn list(n: usize, change: impl FnOnce(&mut ListOptions)) -> ListOptions {
    let mut list = ListOptions::best(n);
    change(&mut list);
    list
}

/// Every allowed item scored by the formula, in order.
fn naive(model: &Model, question: &Question) -> Vec<Scored> {
    let network = model.network().unwrap();
    let mut history = question.history.clone();
    history.sort_unstable();
    history.dedup();
    let query = encode(network, 1, |_| History { items: &history, weights: None });
    let list = &question.list;
    let mut all: Vec<Scored> = (0..N_ITEMS as ItemId)
        .filter(|item| {
            !list.exclude.contains(item)
                && (list.keep_seen || !history.contains(item))
                && list.only.as_ref().is_none_or(|only| only.contains(item))
        })
        .map(|item| {
            let row = network.tables.items.row(item as usize);
            let dot: f32 = row.iter().zip(query.row(0)).map(|(a, b)| a * b).sum();
            let bias = network.tables.item_bias.map_or(0.0, |bias| bias.row(0)[item as usize]);
            Scored { item, score: dot + bias }
        })
        .collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    all.truncate(list.n);
    all
}

fn assert_list(got: &[Scored], expected: &[Scored], question: &Question) {
    assert_eq!(got.len(), expected.len(), "exactly as many as are asked for and allowed");
    let list = &question.list;
    for (got, want) in got.iter().zip(expected) {
        assert!((got.score - want.score).abs() < 1e-5, "{got:?} {want:?}");
        assert!(!list.exclude.contains(&got.item));
        assert!(list.keep_seen || !question.history.contains(&got.item));
        assert!(list.only.as_ref().is_none_or(|only| only.contains(&got.item)));
    }
    for pair in got.windows(2) {
        assert!(
            pair[0].score > pair[1].score || (pair[0].score == pair[1].score && pair[0].item < pair[1].item)
        );
    }
}

fn items(most: usize) -> impl Strategy<Value = Vec<ItemId>> {
    prop::collection::vec(0..N_ITEMS as ItemId, 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn lists_have_exactly_n_items_under_any_filter(
        history in items(30),
        exclude in items(800),
        only in prop::option::of(items(800)),
        n in 0usize..900,
        keep_seen: bool,
        item_bias: bool,
    ) {
        let model = model(item_bias);
        let list = list(n, |list| {
            (list.exclude, list.only, list.keep_seen) = (exclude, only, keep_seen);
        });
        let question = Question::of(history).with(list);
        let expected = naive(&model, &question);
        assert_list(&model.recommend(&question).unwrap(), &expected, &question);

        let mut ascending = question.history.clone();
        ascending.sort_unstable();
        ascending.dedup();
        let mut lists = 0;
        let of = |_| History { items: &ascending, weights: None };
        model
            .recommend_all(3, of, &question.list, |user, answer| {
                assert_eq!(user, lists);
                lists += 1;
                assert_list(&answer.items, &expected, &question);
                Ok(())
            })
            .unwrap();
        assert_eq!(lists, 3);
    }
}

#[test]
fn weights_follow_their_items_and_the_first_of_repeated_ones_counts() {
    let model = model(false);
    let list = |items: &[ItemId], weights: &[f32]| {
        model.recommend(&Question::for_viewer(History { items, weights: Some(weights) }))
    };
    let sorted = list(&[1, 5, 9], &[1.0, 4.0, 2.0]).unwrap();
    assert_eq!(list(&[9, 5, 1, 5], &[2.0, 4.0, 1.0, 9.0]).unwrap(), sorted);
    assert_ne!(list(&[1, 5, 9], &[4.0, 1.0, 2.0]).unwrap(), sorted);
    assert!(list(&[1, 5], &[1.0]).unwrap_err().to_string().contains("1 weights for 2 items"));
    assert!(list(&[1], &[f32::NAN]).is_err());
}

#[test]
fn unknown_items_are_reported_or_refused() {
    let model = model(false);
    let mut request = Request::of(["i5", "nobody", "i3", "i5"]);
    request.exclude = vec!["i7".to_string(), "nothing".to_string()];
    let response = model.ask(&[request]).pop().unwrap().unwrap();
    assert_eq!((response.history, response.unknown), (vec![3, 5], vec!["nobody".into(), "nothing".into()]));
    assert_eq!(model.item("i7").unwrap(), 7);
    assert!(model.item("nobody").unwrap_err().to_string().contains("unknown item `nobody`"));
    for question in [
        Question::of([700]),
        Question::default().with(list(10, |list| list.exclude = vec![700])),
        Question::default().with(list(10, |list| list.only = Some(vec![1, 700]))),
    ] {
        assert!(model.recommend(&question).unwrap_err().to_string().contains("positions below 700"));
    }
    let unsorted = |_| History { items: &[5, 3], weights: None };
    let refused = model.recommend_all(1, unsorted, &ListOptions::default(), |_, _| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("user 0"));
}

#[test]
fn similar_items_are_ordered_by_cosine_and_never_the_item_itself() {
    let model = model(true);
    let similar = model.similar(599, 60).unwrap();
    assert_eq!(similar.len(), 60);
    let twins: Vec<ItemId> = similar[..50].iter().map(|scored| scored.item).collect();
    assert_eq!(twins, (600..650).collect::<Vec<_>>());
    let vectors = model.network().unwrap().tables.items;
    let dot = |a: ItemId, b: ItemId| -> f32 {
        vectors.row(a as usize).iter().zip(vectors.row(b as usize)).map(|(x, y)| x * y).sum()
    };
    for scored in &similar {
        let cosine = dot(599, scored.item) / (dot(599, 599) * dot(scored.item, scored.item)).sqrt();
        assert!((scored.score - cosine).abs() < 1e-5);
    }
    assert_eq!(model.similar(0, 10_000).unwrap().len(), N_ITEMS - 1);
    assert!(model.similar(700, 1).is_err());
}

#[test]
fn large_catalogues_are_scored_in_parts() {
    // Three parts of 32,768 items, with ties across them.
    let config = Config { hidden: 4, latent: 2, ..Config::default() };
    let n_items = 70_000;
    let mut parameters = Parameters::random(&config, n_items);
    for item in 0..n_items {
        parameters.items.row_mut(item)[..2].copy_from_slice(&[1.0, (item % 1000) as f32]);
    }
    parameters.head_bias.row_mut(0)[1] = 1.0;
    let ids = Arc::new(IdMap::range(n_items));
    let model = Model::of_parameters(&config, parameters, ids, vec![0; n_items]).unwrap();
    let question = Question::default().with(list(72, |list| list.exclude = vec![33_999]));
    let list = model.recommend(&question).unwrap();
    let items: Vec<ItemId> = list.iter().map(|scored| scored.item).collect();
    let tops = (0..70).map(|i| i * 1000 + 999).filter(|&i| i != 33_999);
    assert_eq!(items, tops.chain([998, 1998, 2998]).collect::<Vec<ItemId>>());
}

fn written(path: &std::path::Path, model: &Model, users: &IdMap) {
    let mut writer = RecommendationWriter::create(path, model, users).unwrap();
    writer.write(0, &[Scored { item: 1, score: 2.5 }, Scored { item: 0, score: -0.5 }]).unwrap();
    writer.write(1, &[]).unwrap();
    assert!(!path.exists(), "a file appears when it is complete");
    writer.finish().unwrap();
}

#[test]
fn lists_are_written_in_the_layout_of_the_extension() {
    let directory = tempfile::tempdir().unwrap();
    let titles = (0..N_ITEMS).map(|i| if i == 1 { "One, \"two\"" } else { "" });
    let model = model(false).with_titles(Titles::new(titles)).unwrap();
    let users = IdMap::from_integers(vec![7, 3]).unwrap();

    let path = directory.path().join("a.csv");
    written(&path, &model, &users);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, "user_id,item_id,rank,score,title\n7,i1,1,2.5,\"One, \"\"two\"\"\"\n7,i0,2,-0.5,\"\"\n");

    let path = directory.path().join("a.jsonl");
    written(&path, &model, &users);
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = r#"{"user":7,"items":[{"item":"i1","score":2.5,"title":"One, \"two\""},{"item":"i0","score":-0.5}]}
{"user":3,"items":[]}
"#;
    assert_eq!(text, expected);
}

#[test]
fn extensions_that_name_no_layout_are_refused() {
    assert_eq!(Layout::of("a/b.csv.gz").unwrap(), Layout::Table);
    assert_eq!(Layout::of("B.TSV").unwrap(), Layout::Table);
    assert_eq!(Layout::of("b.ndjson").unwrap(), Layout::JsonLines);
    for path in ["b.json", "b", "b.jsonl.gz", "b.parquet.zst", ""] {
        assert!(Layout::of(path).unwrap_err().to_string().contains("use .csv, .tsv, .jsonl or .parquet"));
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_files_hold_typed_columns() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.parquet");
    let users = IdMap::from_integers(vec![7, 3]).unwrap();
    let titles = Titles::new((0..N_ITEMS).map(|i| format!("t{i}")));
    written(&path, &model(false).with_titles(titles).unwrap(), &users);
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let rows: Vec<String> = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert_eq!(
        rows,
        [
            "{user_id: 7, item_id: \"i1\", rank: 1, score: 2.5, title: \"t1\"}",
            "{user_id: 7, item_id: \"i0\", rank: 2, score: -5E-1, title: \"t0\"}"
        ]
    );
}
