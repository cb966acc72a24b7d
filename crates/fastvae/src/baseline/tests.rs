use std::sync::Arc;

use super::*;
use crate::control::Control;
use crate::data::{IdMap, ItemId};
use crate::eval::{Scorer, Viewer, evaluate};
use crate::math::{Purpose, Stream};
use crate::model::Model;
use crate::recommend::{ListOptions, Question};
use crate::train::fit;

/// Users with a taste: most of a user's items are of one residue, so that there is something to learn.
pub(crate) fn random_interactions(n_users: usize, n_items: usize, weighted: bool) -> Interactions {
    let mut offsets = vec![0];
    let (mut items, mut weights) = (Vec::new(), Vec::new());
    for user in 0..n_users {
        let mut stream = Stream::new(11, Purpose::Generate, 0, user as u32);
        for item in 0..n_items {
            let likes = if item % 4 == user % 4 { 0.5 } else { 0.04 };
            if stream.uniform() < likes {
                items.push(item as ItemId);
                weights.push(0.5 + stream.uniform() as f32);
            }
        }
        offsets.push(items.len());
    }
    let names = |prefix: &str, n: usize| {
        Arc::new(IdMap::from_strings((0..n).map(|k| format!("{prefix}{k}"))).unwrap())
    };
    let weights = weighted.then_some(weights);
    Interactions::from_parts(offsets, items, weights, None, names("u", n_users), names("i", n_items)).unwrap()
}

fn quick(kind: Kind) -> Settings {
    let mut settings = serde_json::to_value(kind.settings()).unwrap();
    for (key, value) in [("factors", 8.into()), ("epochs", 15.into()), ("batch", 128.into())] {
        if let Some(entry) = settings.get_mut(key) {
            *entry = serde_json::Value::clone(&value);
        }
    }
    if settings.get("clusters").is_some() {
        settings["clusters"] = 4.into();
    }
    if settings.get("rank_scale").is_some() {
        settings["rank_scale"] = 10.into();
    }
    if settings.get("learning_rate").is_some() {
        settings["learning_rate"] = 0.03.into();
    }
    serde_json::from_value(settings).unwrap()
}

fn fitted(data: &Interactions, kind: Kind) -> Model {
    fit(data.clone(), &quick(kind), |_| Control::Continue).unwrap()
}

/// What to show user `user` of `data`.
fn question(model: &Model, data: &Interactions, user: usize, list: ListOptions) -> Question {
    let known = crate::eval::scorer::positions_of(model, data.user_ids());
    Question::for_viewer(Viewer { history: data.row(user).into(), user: known[user] }).with(list)
}

#[test]
fn every_baseline_but_popularity_finds_the_taste() {
    let data = random_interactions(200, 80, false);
    let parts = crate::data::Split::Ratio(0.8).apply(&data, 0).unwrap();
    let metric = "ndcg@10".parse().unwrap();
    for kind in Kind::ALL {
        let baseline = fitted(&parts.train, kind);
        let evaluation = evaluate(&baseline, &parts.train, &parts.test, &[metric]).unwrap();
        let value = evaluation.mean(metric).unwrap();
        // About 2 of 11 unseen items of the taste are tested: a random order within it gives about 0.2, and one
        // that ignores the taste a quarter of that.
        let least = if kind == Kind::Popularity { 0.0 } else { 0.12 };
        assert!(value > least, "{kind}: {value}");
    }
}

#[test]
fn what_is_saved_comes_back() {
    let data = random_interactions(60, 40, true);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.fastvae");
    for kind in Kind::ALL {
        let baseline = fitted(&data, kind).with_users(Arc::new(data.clone())).unwrap();
        baseline.save(&path).unwrap();
        let loaded = Model::load(&path).unwrap();
        assert_eq!(loaded.description(), baseline.description());
        assert_eq!(loaded.users().unwrap().items(), data.items());
        let ask = question(&loaded, &data, 7, ListOptions::best(12));
        assert_eq!(loaded.recommend(&ask).unwrap(), baseline.recommend(&ask).unwrap(), "{kind}");
        baseline.save_without_users(&path).unwrap();
        let bare = Model::load(&path).unwrap();
        assert!(bare.users().is_none());
        assert_eq!(bare.recommend(&ask).unwrap(), loaded.recommend(&ask).unwrap(), "{kind}");
        match (kind, loaded.similar(3, 5)) {
            (Kind::Popularity, likeness) => assert!(likeness.unwrap_err().to_string().contains("item-knn")),
            (_, likeness) => {
                let likeness = likeness.unwrap();
                assert_eq!(likeness, baseline.similar(3, 5).unwrap());
                assert!(likeness.len() == 5 && likeness.iter().all(|scored| scored.item != 3), "{kind}");
            }
        }
    }
}

#[test]
fn lists_within_a_selection_are_the_best_of_it() {
    let data = random_interactions(60, 40, false);
    let only = [3, 4, 9, 17, 20, 33];
    for kind in Kind::ALL {
        let baseline = fitted(&data, kind);
        let users: Vec<_> = crate::eval::scorer::positions_of(&baseline, data.user_ids());
        let viewer = |at: usize| Viewer { history: data.row(at).into(), user: users[at] };
        let list = ListOptions { n: 4, only: Some(only.to_vec()), ..ListOptions::default() };
        let mut n_lists = 0;
        baseline
            .recommend_all(60, viewer, &list, |at, many| {
                let single = baseline.recommend(&question(&baseline, &data, at, list.clone()))?;
                assert_eq!(single.len(), many.items.len());
                for (a, b) in single.iter().zip(many.items) {
                    assert!((a.score - b.score).abs() < 1e-4, "{kind}: {single:?}");
                }
                n_lists += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(n_lists, 60);
    }
}

#[test]
fn who_cannot_be_folded_in_is_refused_with_a_way_out() {
    let data = random_interactions(40, 30, false);
    for kind in Kind::ALL {
        let baseline = fitted(&data, kind);
        match baseline.recommend(&Question::of([1, 5])) {
            Ok(_) => assert!(baseline.user_ids().is_none(), "{kind}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(kind.name()) && text.contains("wrmf"), "{text}");
                assert!(baseline.user_ids().is_some());
            }
        }
    }
}

#[test]
fn damaged_files_are_errors() {
    let data = random_interactions(30, 20, false);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.fastvae");
    for kind in [Kind::ItemKnn, Kind::Ease, Kind::Wrmf, Kind::Bpr] {
        fitted(&data, kind).save(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(1 + whole.len() / 1500) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            // Any value will do as long as nothing panics: some bytes are numbers like others.
            if let Ok(baseline) = Model::load(&path) {
                let _ = baseline.recommend(&question(&baseline, &data, 2, ListOptions::best(5)));
                let _ = baseline.similar(1, 3);
            }
        }
    }
}

#[test]
fn names_that_do_not_exist_list_those_that_do() {
    let error = "als".parse::<Kind>().unwrap_err().to_string();
    assert!(error.contains("`als`") && error.contains("wrmf") && error.contains("item-knn"), "{error}");
    for kind in Kind::ALL {
        assert_eq!(kind.name().parse::<Kind>().unwrap(), kind);
        assert_eq!(serde_json::to_value(kind.settings()).unwrap()["model"], kind.name());
        kind.paper_settings().validate().unwrap();
    }
}

#[test]
fn an_observer_can_stop_the_work() {
    let data = random_interactions(40, 30, false);
    for kind in [Kind::Wrmf, Kind::Warp] {
        let mut calls = 0;
        let result = fit(data.clone(), &quick(kind), |_| {
            calls += 1;
            if calls == 2 { Control::Stop } else { Control::Continue }
        });
        assert!(matches!(result, Err(Error::Interrupted)) && calls == 2, "{kind}");
    }
}
