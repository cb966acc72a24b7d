//! Model files: what is saved comes back, old files still load, and no file can do harm.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastvae::config::{Config, Quantizer, Ridge};
use fastvae::data::{GenerateOptions, IdMap, Interactions, Statistics, Titles, generate};
use fastvae::eval::{Estimate, Evaluation};
use fastvae::internals::model::{FORMAT, ModelInternals};
use fastvae::internals::model_file::tensors::TensorWriter;
use fastvae::internals::network::Parameters;
use fastvae::model::{Description, EpochRecord, Settings};
use fastvae::recommend::{ListOptions, Question, Request, SearchOptions};
use fastvae::train::Control;
use fastvae::{Error, Model, Result, train};
use safetensors::SafeTensors;

const N_ITEMS: usize = 40;

fn config() -> Config {
    Config { hidden: 9, latent: 6, encoder_rank: 4, codewords: 3, item_bias: true, ..Config::default() }
}

/// A model with everything that a file can hold.
fn full_model() -> Model {
    let config = config();
    let mut parameters = Parameters::random(&config, N_ITEMS);
    let bias = parameters.item_bias.as_mut().unwrap().row_mut(0);
    bias.iter_mut().take(N_ITEMS).enumerate().for_each(|(i, b)| *b = i as f32 * 0.01);
    let item_ids = Arc::new(IdMap::from_strings((0..N_ITEMS).map(|i| format!("item-{i}"))).unwrap());
    let users = Interactions::from_parts(
        vec![0, 2, 2, 5],
        vec![1, 39, 0, 7, 8],
        Some(vec![1.0, 2.0, 1.0, 1.0, 0.5]),
        None,
        Arc::new(IdMap::from_integers(vec![100, 7, 55]).unwrap()),
        Arc::clone(&item_ids),
    )
    .unwrap();
    let counts = (0..N_ITEMS as u32).collect();
    let mut model = Model::of_parameters(&config, parameters, item_ids, counts).unwrap();
    let mut search = SearchOptions::default();
    search.codewords = Some(config.codewords);
    model.calibrate(Some(&users), &search).unwrap();
    let mut epoch = EpochRecord::default();
    (epoch.epoch, epoch.loss) = (1, 12.5);
    let description = model.description_mut();
    description.statistics = Some(Statistics::of(&users));
    description.measured_on = Some("a test file".to_string());
    description.evaluation = Some(Evaluation {
        n_users: 3,
        metrics: [("ndcg@50".parse().unwrap(), Estimate { mean: 0.25, standard_error: Some(0.125) })].into(),
    });
    description.epochs = vec![epoch];
    let titles = (0..N_ITEMS).map(|i| if i % 2 == 0 { format!("Tïtle {i}") } else { String::new() });
    model.with_titles(Titles::new(titles)).unwrap().with_users(Arc::new(users)).unwrap()
}

fn recommended(model: &Model) -> Vec<(u32, f32)> {
    let best = model.recommend(&Question::of([3, 11, 20]).with(ListOptions::best(8))).unwrap();
    best.iter().map(|scored| (scored.item, scored.score)).collect()
}

fn replaced(path: &Path, bytes: &[u8]) -> Result<Model> {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, bytes).unwrap();
    Model::load(path)
}

#[test]
fn a_model_comes_back_as_it_was_saved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    let model = full_model();
    model.save(&path).unwrap();
    let loaded = Model::load(&path).unwrap();
    assert_eq!(recommended(&loaded), recommended(&model));
    assert_eq!(loaded.description(), model.description());
    assert_eq!(loaded.item_ids(), model.item_ids());
    assert_eq!(loaded.item_counts(), model.item_counts());
    assert_eq!(loaded.titles(), model.titles());
    assert_eq!(loaded.title(4), Some("Tïtle 4"));
    let (index, expected) = (loaded.index().unwrap(), model.index().unwrap());
    assert_eq!((index.codes(), index.settings()), (expected.codes(), expected.settings()));
    assert_eq!(index.codebooks()[1].codeword(2), expected.codebooks()[1].codeword(2));
    let (users, expected) = (loaded.users().unwrap(), model.users().unwrap());
    assert_eq!((users.offsets(), users.items()), (expected.offsets(), expected.items()));
    assert_eq!((users.weights(), users.user_ids()), (expected.weights(), expected.user_ids()));
    assert!(loaded.is_finite());
}

#[test]
fn histories_can_be_left_out_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    let model = full_model();
    model.save_without_users(&path).unwrap();
    let loaded = Model::load(&path).unwrap();
    assert!(model.users().is_some() && loaded.users().is_none());
    assert_eq!(recommended(&loaded), recommended(&model));
    assert_eq!(loaded.titles(), model.titles());
}

#[test]
fn a_model_without_extras_comes_back_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    let config = Config { item_bias: false, quantizer: Quantizer::Residual, ..config() };
    let parameters = Parameters::random(&config, N_ITEMS);
    let ids = Arc::new(IdMap::range(N_ITEMS));
    let model = Model::of_parameters(&config, parameters, ids, vec![0; N_ITEMS]).unwrap();
    model.save(&path).unwrap();
    let loaded = Model::load(&path).unwrap();
    assert_eq!(recommended(&loaded), recommended(&model));
    assert!(loaded.item_ids().is_range());
    assert!(loaded.titles().is_none() && loaded.index().is_none() && loaded.users().is_none());
}

#[test]
fn a_loaded_model_is_saved_over_itself_byte_by_byte() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    full_model().save(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let loaded = Model::load(&path).unwrap();
    loaded.save(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(recommended(&loaded), recommended(&full_model()));
}

#[test]
fn files_cut_short_or_with_flipped_bytes_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    full_model().save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for len in (0..whole.len()).step_by(61) {
        assert!(matches!(replaced(&path, &whole[..len]), Err(Error::ModelFile { .. })), "cut at {len}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= [1, 0x20, 0x80, 0xff][at % 4];
        match replaced(&path, &bytes) {
            Ok(model) => {
                recommended(&model);
                model.similar(0, 3).unwrap();
            }
            Err(Error::ModelFile { .. }) => {}
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
}

#[test]
fn values_that_point_nowhere_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    full_model().save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let refused = |name: &str, at: usize, with: &[u8], because: &str| {
        let mut bytes = whole.clone();
        let tensor = SafeTensors::deserialize(&whole).unwrap().tensor(name).unwrap().data();
        let start = tensor.as_ptr() as usize - whole.as_ptr() as usize + at * with.len();
        bytes[start..start + with.len()].copy_from_slice(with);
        let problem = replaced(&path, &bytes).unwrap_err();
        assert!(matches!(problem, Error::ModelFile { .. }));
        let problem = problem.to_string();
        assert!(problem.contains(because) && problem.contains("again"), "{name}: {problem}");
    };
    refused("users.items", 1, &40u32.to_le_bytes(), "row 0 is unsorted, repeats an item or passes 40");
    refused("users.offsets", 1, &u64::MAX.to_le_bytes(), "row 0");
    refused("users.offsets", 0, &1u64.to_le_bytes(), "offsets");
    refused("users.weights", 0, &f32::NAN.to_le_bytes(), "`users.weights` has values that are not finite");
    refused("user_ids.integers", 0, &7i64.to_le_bytes(), "`7` appears twice");
    refused("index.codes", 3, &[3], "code 3 with 3 codewords");
    refused(
        "index.codewords.1",
        0,
        &f32::INFINITY.to_le_bytes(),
        "codebook 1 has values that are not finite",
    );
    refused("head", 5, &f32::NAN.to_le_bytes(), "`head` has values that are not finite");
    refused("item_bias", 5, &f32::NAN.to_le_bytes(), "`item_bias` has values that are not finite");
    refused("titles.bytes", 1, &[0xff], "not UTF-8");
    refused("titles.ends", 0, &u64::MAX.to_le_bytes(), "titles");
    refused("item_ids.ends", 2, &0u64.to_le_bytes(), "identifiers");
}

#[test]
fn other_files_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    let problem_of = |texts: &[(&str, &str)]| {
        let mut writer = TensorWriter::new();
        for (key, text) in texts {
            writer.metadata(*key, *text);
        }
        writer.write(&path).unwrap();
        Model::load(&path).unwrap_err().to_string()
    };
    assert!(problem_of(&[]).contains("not a model of this library"));
    assert!(problem_of(&[("kind", "checkpoint")]).contains("holds a checkpoint, not a model"));
    let newer = (FORMAT + 1).to_string();
    assert!(problem_of(&[("kind", "model"), ("format", &newer)]).ends_with("upgrade fastvae"));
    assert!(problem_of(&[("kind", "model"), ("format", "0")]).contains("no valid format number"));
    assert!(problem_of(&[("kind", "model"), ("format", "1")]).contains("no description"));
    let texts = [("kind", "model"), ("format", "1"), ("description", "{}")];
    assert!(problem_of(&texts).contains("description is not valid"));
    assert!(matches!(Model::load(directory.path().join("absent")), Err(Error::Io { .. })));
    assert!(replaced(&path, b"").unwrap_err().to_string().contains("again"));
    assert!(replaced(&path, b"user,item\n1,2\n3,4\n").unwrap_err().to_string().contains("again"));
}

#[test]
fn shapes_that_no_bytes_pay_for_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fastvae");
    for (hidden, latent) in [(9, 0), (0, 6)] {
        let description = Description::new(Settings::Vae(Config { hidden, latent, ..config() }));
        let mut writer = TensorWriter::new();
        writer
            .metadata("kind", "model")
            .metadata("format", "1")
            .metadata("description", serde_json::to_string(&description).unwrap())
            .shaped::<f32>("items", &[if latent == 0 { 1 << 40 } else { 0 }, latent], &[]);
        writer.write(&path).unwrap();
        assert!(matches!(Model::load(&path), Err(Error::ModelFile { .. })));
    }
}

fn fixture(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{format}.fastvae"))
}

/// Writes the fixture of the present format, which holds the model of the first; run once, when the format changes.
#[test]
#[ignore = "writes a file that is checked in"]
fn write_fixture() {
    Model::load(fixture(1)).unwrap().save(fixture(FORMAT)).unwrap();
}

/// What every format must give of the model that its fixture holds, a [`full_model`] of random values.
fn is_the_full_model(model: &Model) {
    let expected: [(u32, f32); 8] = [
        (37, 0.44758213),
        (31, 0.41512337),
        (35, 0.3982205),
        (38, 0.38233495),
        (39, 0.3631352),
        (34, 0.3626775),
        (36, 0.33903253),
        (32, 0.32738876),
    ];
    for ((item, score), (expected_item, expected_score)) in recommended(model).into_iter().zip(expected) {
        assert_eq!(item, expected_item);
        assert!((score - expected_score).abs() < 1e-5, "item {item}: {score} {expected_score}");
    }
    assert_eq!(model.item_ids().name(39), "item-39");
    assert_eq!(model.title(38), Some("Tïtle 38"));
    assert_eq!(model.users().unwrap().row(2).items, [0, 7, 8]);
    assert_eq!(model.users().unwrap().user_ids().position("55"), Some(2));
    assert_eq!(model.index().unwrap().settings().n_codewords, 3);
    assert_eq!(model.description().evaluation.as_ref().unwrap().mean("ndcg@50".parse().unwrap()), Some(0.25));
}

#[test]
fn files_of_every_format_load_and_score_the_same() {
    for format in 1..=FORMAT {
        is_the_full_model(&Model::load(fixture(format)).unwrap());
    }
}

/// What a network gives with a linear part and a weight on popularity beside it, as it did when its file was written.
const BLENDED: [(&str, f32); 5] =
    [("18", 2.257658), ("1", 1.3753295), ("6", 1.1758595), ("4", 1.1046455), ("9", 1.0983378)];

/// Writes the fixture of a network with something beside it; run once, when the format changes.
#[test]
#[ignore = "writes a file that is checked in"]
fn write_blended_fixture() {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions) = (30, 24, 200);
    let ridge =
        Ridge { neighbours: 4, penalty: Some(2.0), weight: Some(3.0), popularity: Some(0.25), power: 0.5 };
    let config = Config {
        hidden: 8,
        latent: 4,
        codewords: 3,
        epochs: 2,
        patience: 0,
        batch: 8,
        ridge,
        ..Config::default()
    };
    let model = train(generate(options).unwrap(), &config, |_| Control::Continue).unwrap();
    model.save(blended_fixture()).unwrap();
    println!("{:?}", blended_list(&model));
}

fn blended_fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{FORMAT}-blended.fastvae"))
}

fn blended_list(model: &Model) -> Vec<(String, f32)> {
    let request = Request::of(["3", "11", "20"]).with(ListOptions::best(5));
    let response = model.ask(&[request]).pop().unwrap().unwrap();
    response.items.into_iter().map(|best| (best.item, best.score)).collect()
}

#[test]
fn a_blended_model_loads_and_scores_the_same() {
    let model = Model::load(blended_fixture()).unwrap();
    let blend = model.description().blend.unwrap();
    assert_eq!((blend.weight, blend.popularity, blend.neighbours, blend.penalty), (3.0, 0.25, 4, 2.0));
    for ((item, score), (expected_item, expected_score)) in blended_list(&model).iter().zip(BLENDED) {
        assert_eq!(item, expected_item);
        assert!((score - expected_score).abs() < 1e-5, "item {item}: {score} {expected_score}");
    }
}

/// The best five of a stored user in baselines of format 1, as the library of then gave them.
const BASELINES: [(&str, [(u32, f32); 5]); 4] = [
    ("item-knn", [(12, 3.6348689), (11, 3.3849716), (8, 3.2570426), (5, 2.8457153), (7, 1.641837)]),
    ("ease", [(8, 0.27818438), (4, 0.2666896), (2, 0.2539654), (11, 0.25316796), (5, 0.23065189)]),
    ("wrmf", [(12, 0.628387), (4, 0.35081238), (5, 0.2294637), (1, 0.1916931), (13, 0.18662378)]),
    ("bpr", [(8, 0.013785144), (2, 0.010325707), (1, 0.005378079), (11, -0.003483902), (4, -0.00395923)]),
];

#[test]
fn baselines_of_format_1_load_and_score_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, expected) in BASELINES {
        let file = format!("tests/fixtures/format-1-{name}.fastvae");
        let model = Model::load(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert_eq!((model.name(), model.title(model.item("i3").unwrap())), (name, Some("Title 3")));
        assert_eq!(model.description().statistics.as_ref().unwrap().users, 12);
        let saved = folder.path().join(name);
        model.save(&saved).unwrap();
        // In the format of now it is the same model.
        for model in [model, Model::load(&saved).unwrap()] {
            let request = Request::of_user("u3").with(ListOptions::best(5));
            let response = model.ask(&[request]).pop().unwrap().unwrap();
            for (got, (item, score)) in response.items.iter().zip(expected) {
                assert_eq!(got.item, format!("i{item}"), "{name}");
                assert!((got.score - score).abs() < 1e-5, "{name}: {got:?} {score}");
            }
        }
    }
}
