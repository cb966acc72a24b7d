//! What every model promises, whatever its method: the same tests for the variational autoencoder and the baselines.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, OnceLock};

use fastvae::baseline::{Kind, Settings};
use fastvae::data::{IdMap, Interactions, ItemId, Titles, UserId};
use fastvae::eval::{History, Scored, Viewer};
use fastvae::internals::eval::{Scorer, positions_of, rank};
use fastvae::internals::math::{Purpose, Stream};
use fastvae::internals::model::ModelInternals;
use fastvae::internals::network::encode;
use fastvae::recommend::{Answer, Fallback, Knobs, ListOptions, Question, Request, SearchOptions, Seen};
use fastvae::train::Control;
use fastvae::{Config, Model, fit, train};

const N_USERS: usize = 70;
const N_ITEMS: usize = 60;
/// The scores of one list may be summed in another order than those of another.
const ROUNDING: f32 = 1e-4;

/// Users with a taste: most of a user's items are of one residue, in weights that differ.
fn data() -> &'static Arc<Interactions> {
    static DATA: OnceLock<Arc<Interactions>> = OnceLock::new();
    DATA.get_or_init(|| {
        let (mut offsets, mut items, mut weights) = (vec![0], Vec::new(), Vec::new());
        for user in 0..N_USERS {
            let mut stream = Stream::new(5, Purpose::Generate, 0, user as u32);
            for item in 0..N_ITEMS {
                let likes = if item % 4 == user % 4 { 0.6 } else { 0.06 };
                if stream.uniform() < likes {
                    items.push(item as ItemId);
                    weights.push(0.5 + 4.0 * stream.uniform() as f32);
                }
            }
            offsets.push(items.len());
        }
        Arc::new(
            Interactions::from_parts(
                offsets,
                items,
                Some(weights),
                None,
                names("u", N_USERS),
                names("i", N_ITEMS),
            )
            .unwrap(),
        )
    })
}

fn names(prefix: &str, n: usize) -> Arc<IdMap> {
    Arc::new(IdMap::from_strings((0..n).map(|k| format!("{prefix}{k}"))).unwrap())
}

fn trained(kind: Option<Kind>) -> Model {
    let Some(kind) = kind else {
        let config = Config {
            hidden: 16,
            latent: 8,
            codewords: 4,
            batch: 16,
            epochs: 15,
            patience: 0,
            ..Config::default()
        };
        return train(Arc::clone(data()), &config, |_| Control::Continue).unwrap();
    };
    let mut settings = serde_json::to_value(kind.settings()).unwrap();
    for (key, value) in [("factors", 8), ("epochs", 10), ("batch", 128), ("clusters", 4), ("rank_scale", 10)]
    {
        if let Some(entry) = settings.get_mut(key) {
            *entry = value.into();
        }
    }
    if kind == Kind::Ease {
        settings["regularization"] = 5.0.into();
    }
    let settings: Settings = serde_json::from_value(settings).unwrap();
    fit(Arc::clone(data()), &settings, |_| Control::Continue).unwrap()
}

/// A model of each method, with titles, users and an index wherever it has vectors.
fn models() -> &'static [Model] {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let kinds = std::iter::once(None).chain(Kind::ALL.into_iter().map(Some));
        let complete = |kind| {
            let mut model = trained(kind);
            model.calibrate(Some(data()), &search()).unwrap();
            let titles = Titles::new((0..N_ITEMS).map(|item| format!("Title {item}")));
            model.with_titles(titles).unwrap().with_users(Arc::clone(data())).unwrap()
        };
        kinds.map(complete).collect()
    })
}

fn search() -> SearchOptions {
    let mut options = SearchOptions::default();
    (options.codewords, options.k, options.recall) = (Some(5), 5, 0.7);
    options
}

fn model(name: &str) -> &'static Model {
    models().iter().find(|model| model.name() == name).unwrap()
}

/// Whether a history alone, and its weights, make the method's scores.
fn reads_histories(model: &Model) -> bool {
    ["fastvae", "item-knn", "item-ridge", "ease", "wrmf"].contains(&model.name())
}

fn list(n: usize, change: impl FnOnce(&mut ListOptions)) -> ListOptions {
    let mut list = ListOptions::best(n);
    change(&mut list);
    list
}

/// User `user` of the data.
fn viewer(model: &Model, user: usize) -> Viewer<'static> {
    let known = positions_of(model, data().user_ids())[user];
    Viewer { history: data().row(user).into(), user: known }
}

fn question(model: &Model, user: usize, list: ListOptions) -> Question {
    Question::for_viewer(viewer(model, user)).with(list)
}

fn answer(model: &Model, question: &Question) -> Answer {
    model.answer(std::slice::from_ref(question)).pop().unwrap().unwrap()
}

/// Refuses lists that differ by more than rounding; items whose scores are nearly alike may change places.
fn assert_same(what: &str, a: &[Scored], b: &[Scored]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (at, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x.score - y.score).abs() < ROUNDING * (1.0 + x.score.abs()), "{what} at {at}: {x:?} {y:?}");
        let near = |other: &&Scored| (other.score - x.score).abs() < ROUNDING * (1.0 + x.score.abs());
        let last = a.last().is_some_and(|last| near(&last));
        assert!(
            x.item == y.item || last || b.iter().filter(near).any(|other| other.item == x.item),
            "{what} at {at}"
        );
    }
}

#[test]
fn a_saved_model_answers_as_it_did() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let path = folder.path().join(model.name());
        model.save(&path).unwrap();
        let loaded = Model::load(&path).unwrap();
        assert_eq!((loaded.name(), loaded.description()), (model.name(), model.description()));
        assert_eq!(loaded.titles(), model.titles());
        assert_eq!(loaded.users().unwrap().weights(), data().weights());
        let options = [
            list(12, |_| ()),
            list(7, |list| list.knobs = Knobs { popularity_penalty: 0.5, ..Knobs::default() }),
            list(5, |list| (list.approximate, list.reasons) = (true, 3)),
        ];
        for (user, list) in options.into_iter().enumerate() {
            let question = question(model, user, list);
            assert_eq!(answer(&loaded, &question), answer(model, &question), "{}", model.name());
        }
        let nobody = Question::default();
        assert_eq!(answer(&loaded, &nobody), answer(model, &nobody), "{}", model.name());
    }
}

#[test]
fn names_positions_and_one_pass_over_all_give_the_same_list() {
    for model in models() {
        let name = model.name();
        let lists = [
            list(9, |_| ()),
            list(9, |list| list.keep_seen = true),
            list(6, |list| (list.exclude, list.only) = (vec![4, 9], Some((0..30).collect()))),
            list(9, |list| list.knobs.popularity_penalty = 1.0),
            list(9, |list| list.knobs = Knobs { temperature: 0.5, seed: 3, ..Knobs::default() }),
        ];
        for list in lists {
            let mut all = Vec::new();
            let each = |_, answer: Answer| {
                all.push(answer.items);
                Ok(())
            };
            model.recommend_all(N_USERS, |user| viewer(model, user), &list, each).unwrap();
            for (user, from_all) in all.iter().enumerate() {
                let by_position = answer(model, &question(model, user, list.clone()));
                assert_same(name, from_all, &by_position.items);
                let request = Request::of_user(format!("u{user}")).with(list.clone());
                let by_name = model.ask(&[request]).pop().unwrap().unwrap();
                assert_eq!(by_name.items, model.named(&by_position), "{name}");
                assert_eq!(by_name.history, data().row(user).items);
                assert_eq!(by_name.items[0].title, Some(format!("Title {}", &by_name.items[0].item[1..])));
                assert_eq!(by_name.fallback, (name == "popularity").then_some(by_name.fallback).flatten());
            }
        }
    }
}

#[test]
fn scores_of_lists_are_those_of_the_evaluation() {
    for model in models() {
        let seen = |user: usize| data().row(user).items;
        let mut ranked = Vec::new();
        let take = |lists: Vec<Vec<Scored>>| {
            ranked.extend(lists);
            Ok(())
        };
        let digest = |rankings: fastvae::internals::eval::Rankings| {
            rankings.iter().map(|(_, best)| best.to_vec()).collect()
        };
        rank(model, N_USERS, |user| viewer(model, user), seen, 15, digest, take).unwrap();
        for (user, ranked) in ranked.iter().enumerate() {
            assert_same(
                model.name(),
                ranked,
                &answer(model, &question(model, user, ListOptions::best(15))).items,
            );
        }
    }
}

#[test]
fn weights_of_a_history_count_whatever_its_order() {
    for model in models().iter().filter(|model| reads_histories(model)) {
        let ask = |items: &[ItemId], weights: Option<&[f32]>| {
            let history = History { items, weights };
            model.recommend(&Question::for_viewer(history).with(ListOptions::best(N_ITEMS))).unwrap()
        };
        let (items, weights) = ([3, 8, 21, 30], [5.0, 0.5, 1.0, 2.0]);
        let weighted = ask(&items, Some(&weights));
        let difference = |other: &[Scored]| -> f32 {
            let score = |item| other.iter().find(|scored| scored.item == item).unwrap().score;
            weighted.iter().map(|scored| (scored.score - score(scored.item)).abs()).fold(0.0, f32::max)
        };
        let name = model.name();
        assert!(difference(&ask(&items, None)) > 10.0 * ROUNDING, "{name} forgets weights");
        assert!(difference(&ask(&items, Some(&[0.5, 5.0, 1.0, 2.0]))) > 10.0 * ROUNDING, "{name}");
        // Of repeated items the first counts.
        assert_eq!(ask(&[30, 3, 21, 3, 8], Some(&[2.0, 5.0, 1.0, 9.0, 0.5])), weighted, "{name}");
        let seen = |item: &str, weight| Seen { item: item.to_string(), weight };
        let named = [seen("i30", Some(2.0)), seen("i3", Some(5.0)), seen("i21", None), seen("i8", Some(0.5))];
        let request = Request::of(named).with(ListOptions::best(N_ITEMS));
        let response = model.ask(&[request]).pop().unwrap().unwrap();
        let scores: Vec<f32> = response.items.iter().map(|item| item.score).collect();
        assert_eq!(scores, weighted.iter().map(|scored| scored.score).collect::<Vec<f32>>(), "{name}");
    }
}

#[test]
fn filters_and_knobs_are_followed() {
    for (at, model) in models().iter().enumerate() {
        let name = model.name();
        let ask = |list: ListOptions| answer(model, &question(model, 7 + at, list)).items;
        let seen = data().row(7 + at).items;
        let all = ask(ListOptions::best(1000));
        assert_eq!(all.len(), N_ITEMS - seen.len(), "{name}: all that are allowed");
        assert!(all.iter().all(|scored| !seen.contains(&scored.item)));
        assert_eq!(ask(list(1000, |list| list.keep_seen = true)).len(), N_ITEMS);
        let some = ask(list(1000, |list| {
            (list.exclude, list.only, list.keep_seen) = (vec![9, 2], Some(vec![33, 9, 5, 33, 17, 2]), true);
        }));
        let mut items: Vec<ItemId> = some.iter().map(|scored| scored.item).collect();
        items.sort_unstable();
        assert_eq!(items, [5, 17, 33], "{name}");

        let score = |item| all.iter().find(|scored| scored.item == item).unwrap().score;
        for scored in ask(list(1000, |list| list.knobs.popularity_penalty = 0.8)) {
            let expected =
                score(scored.item) - 0.8 * (model.item_counts()[scored.item as usize] as f32).ln_1p();
            assert!((scored.score - expected).abs() < ROUNDING * (1.0 + expected.abs()), "{name}");
        }
        let drawn =
            |seed| ask(list(8, |list| list.knobs = Knobs { temperature: 5.0, seed, ..Knobs::default() }));
        assert_eq!(drawn(1), drawn(1));
        assert!((2..20).any(|seed| drawn(seed) != drawn(1)), "{name} draws the same list for every seed");
        assert!(
            drawn(1)
                .iter()
                .all(|scored| (scored.score - score(scored.item)).abs()
                    < ROUNDING * (1.0 + scored.score.abs()))
        );

        let diverse = list(8, |list| list.knobs.diversity = 0.9);
        if name == "popularity" {
            let refused = model.recommend(&question(model, 7, diverse)).unwrap_err().to_string();
            assert!(refused.contains("item-knn"), "{refused}");
            continue;
        }
        let diverse = ask(diverse);
        assert_eq!((diverse.len(), diverse[0]), (8, all[0]), "{name}");
        assert_ne!(diverse, all[..8], "{name}");
    }
}

#[test]
fn nobody_gets_the_answer_to_nobody_or_the_popular_items_and_is_told() {
    let popular = {
        let counts = data().item_counts();
        let mut items: Vec<ItemId> = (0..N_ITEMS as ItemId).collect();
        items.sort_by_key(|&item| (std::cmp::Reverse(counts[item as usize]), item));
        items
    };
    for model in models() {
        let name = model.name();
        let fallback = if name == "fastvae" { Fallback::Nobody } else { Fallback::Popularity };
        let empty = answer(model, &Question::default());
        assert_eq!(empty.fallback, Some(fallback), "{name}");
        if fallback == Fallback::Popularity {
            let items: Vec<ItemId> = empty.items.iter().map(|scored| scored.item).collect();
            assert_eq!(items, popular[..10], "{name}");
        }
        for request in [Request::default(), Request::of(["nothing", "known"])] {
            let n_unknown = request.history.len();
            let response = model.ask(&[request]).pop().unwrap().unwrap();
            assert_eq!((response.items, response.fallback), (model.named(&empty), Some(fallback)), "{name}");
            assert_eq!(response.unknown.len(), n_unknown);
        }
        // The same in one pass over all, whoever they are said to be among users that the method does not have.
        let user = if model.user_ids().is_some() { None } else { Some(3) };
        let nobody = Viewer { user, ..Viewer::default() };
        let same = |_, answer: Answer| {
            assert_same(name, &answer.items, &empty.items);
            assert_eq!(answer.fallback, Some(fallback), "{name}");
            Ok(())
        };
        model.recommend_all(2, |_| nobody, &ListOptions::default(), same).unwrap();
        // Filters hold, and whoever is known gets no fallback.
        let question = Question::default().with(list(3, |list| list.exclude = vec![empty.items[0].item]));
        assert_same(name, &answer(model, &question).items, &empty.items[1..4]);
        assert_eq!(answer(model, &self::question(model, 5, ListOptions::default())).fallback, None, "{name}");
    }
}

#[test]
fn reasons_are_what_the_score_loses() {
    for model in models() {
        let question = question(model, 11, list(4, |list| list.reasons = 50));
        let Answer { items, reasons, .. } = answer(model, &question);
        assert_eq!(reasons.len(), 4);
        if !reads_histories(model) {
            assert!(reasons.iter().all(Vec::is_empty), "{}: no item can be left out", model.name());
            continue;
        }
        let (history, weights) = (&question.history, question.weights.as_ref().unwrap());
        for (scored, reasons) in items.iter().zip(&reasons) {
            assert!(!reasons.is_empty());
            for reason in reasons {
                let kept = |at: &usize| history[*at] != reason.item;
                let kept: Vec<usize> = (0..history.len()).filter(kept).collect();
                let rest: Vec<ItemId> = kept.iter().map(|&at| history[at]).collect();
                let weights: Vec<f32> = kept.iter().map(|&at| weights[at]).collect();
                let rest = History { items: &rest, weights: Some(&weights) };
                let only = list(1, |list| (list.only, list.keep_seen) = (Some(vec![scored.item]), true));
                let without = answer(model, &Question::for_viewer(rest).with(only)).items[0].score;
                let lost = scored.score - without;
                assert!((reason.contribution - lost).abs() < 1e-3, "{}: {reason:?} {lost}", model.name());
            }
            let shares: f32 = reasons.iter().map(|reason| reason.share).sum();
            assert!(
                (shares - 1.0).abs() < 1e-3 && reasons.is_sorted_by(|a, b| a.contribution >= b.contribution)
            );
        }
    }
}

#[test]
fn approximate_lists_come_only_where_scores_are_products_and_have_exact_scores() {
    for model in models() {
        let name = model.name();
        let has_vectors = Scorer::item_table(model).is_some();
        assert_eq!(has_vectors, !["popularity", "item-knn", "item-ridge", "ease"].contains(&name), "{name}");
        assert_eq!(model.description().search.is_some(), has_vectors, "{name}");
        let mut scored_all = 0;
        for user in 0..N_USERS {
            let near = answer(model, &question(model, user, list(5, |list| list.approximate = true)));
            assert_eq!(near.is_approximate, has_vectors, "{name}");
            let exact = answer(model, &question(model, user, ListOptions::best(N_ITEMS))).items;
            for scored in &near.items {
                let same = exact.iter().find(|other| other.item == scored.item).unwrap();
                assert!((same.score - scored.score).abs() < ROUNDING, "{name}");
            }
            scored_all += usize::from(near.items[..] == exact[..5]);
        }
        assert!(has_vectors || scored_all == N_USERS, "{name}");
        // Popular items are not found by vectors.
        let nobody = answer(model, &Question::default().with(list(5, |list| list.approximate = true)));
        assert_eq!(nobody.is_approximate, name == "fastvae", "{name}");
    }
}

#[test]
fn small_items_give_the_same_lists() {
    let folder = tempfile::tempdir().unwrap();
    for model in models() {
        let path = folder.path().join(model.name());
        model.save(&path).unwrap();
        let small = Model::load(&path).unwrap().with_small_items();
        assert_eq!(small.small_items_bytes().is_some(), Scorer::item_table(model).is_some());
        for user in 0..N_USERS {
            let question = question(model, user, list(10, |list| list.knobs.popularity_penalty = 0.2));
            assert_same(model.name(), &answer(&small, &question).items, &answer(model, &question).items);
        }
        let nobody = Question::default();
        assert_same(model.name(), &answer(&small, &nobody).items, &answer(model, &nobody).items);
    }
}

#[test]
fn users_without_stored_histories_are_known_to_methods_that_learned_them() {
    for kind in [Kind::Bpr, Kind::Ease] {
        let model = trained(Some(kind));
        let response = model.ask(&[Request::of_user("u3"), Request::of_user("somebody")]);
        let [known, unknown] = &response[..] else { panic!("two answers to two requests") };
        assert!(unknown.as_ref().unwrap_err().to_string().contains("somebody"));
        match known {
            Ok(response) => {
                assert!(kind == Kind::Bpr && response.items.len() == 10 && response.fallback.is_none())
            }
            Err(error) => {
                assert!(kind == Kind::Ease && error.to_string().contains("--store-users"), "{error}")
            }
        }
    }
}

#[test]
fn users_that_a_method_does_not_know_are_left_out_of_a_calibration() {
    let parts = (data().offsets().to_vec(), data().items().to_vec());
    let others = names("other", N_USERS);
    let others =
        Interactions::from_parts(parts.0, parts.1, None, None, others, Arc::clone(data().item_ids()))
            .unwrap();
    let mut model = trained(Some(Kind::Bpr));
    model.calibrate(Some(&others), &search()).unwrap();
    assert!(model.description().search.is_some());
}

#[test]
fn a_search_is_calibrated_on_weighted_histories() {
    let parts = (data().offsets().to_vec(), data().items().to_vec());
    // All of a history's weight on one item: nothing like the same items alike.
    let mut weights = vec![1e-3; parts.1.len()];
    parts.0[..N_USERS].iter().for_each(|&first| weights[first] = 1.0);
    let with = |weights| {
        let (users, items) = (Arc::clone(data().user_ids()), Arc::clone(data().item_ids()));
        Interactions::from_parts(parts.0.clone(), parts.1.clone(), weights, None, users, items).unwrap()
    };
    let calibration = |users: &Interactions| {
        let mut model = trained(None);
        model.calibrate(Some(users), &search()).unwrap();
        model.description().search.unwrap()
    };
    let (weighted, alike) = (calibration(&with(Some(weights))), calibration(&with(None)));
    assert_ne!(
        (weighted.cells, weighted.recall, weighted.scored_share),
        (alike.cells, alike.recall, alike.scored_share)
    );
}

#[test]
fn a_weighted_history_is_encoded_with_its_weights() {
    let model = model("fastvae");
    let network = model.network().unwrap();
    for user in 0..10 {
        let viewer = viewer(model, user);
        let query = encode(network, 1, |_| viewer.history);
        let viewers = [viewer];
        let scores = model.block(&viewers).unwrap();
        let (queries, _) = scores.products.as_ref().unwrap();
        assert_eq!(queries.row(0), query.row(0));
        let best = answer(model, &question(model, user, ListOptions::best(1))).items[0];
        let vector = network.tables.items.row(best.item as usize);
        let dot: f32 = vector.iter().zip(query.row(0)).map(|(a, b)| a * b).sum();
        let few = scores.few.as_ref().unwrap()(0);
        let linear = few.iter().find(|few| few.item == best.item).map_or(0.0, |few| few.score);
        assert!((best.score - dot - linear).abs() < ROUNDING);
    }
}

#[test]
fn a_user_is_a_position_only_where_the_method_has_users() {
    for model in models() {
        let learned = ["bpr", "warp", "aobpr", "dns", "pris", "sa"].contains(&model.name());
        let positions: Vec<Option<UserId>> = positions_of(model, data().user_ids());
        assert!(positions.iter().all(|user| user.is_some() == learned), "{}", model.name());
    }
}
