//! What a model has learned from, what is stored with it, and what is said of both.

use std::collections::HashSet;

use serde_json::Value;

use crate::Place;

/// Users with their items.
type Pairs = HashSet<(String, String)>;

/// Every user's items in a file of lists or of interactions, the first two fields of each line.
fn pairs(text: &str, separator: char) -> Pairs {
    let pair = |line: &str| {
        let mut fields = line.split(separator);
        Some((fields.next()?.to_string(), fields.next()?.to_string()))
    };
    text.lines().filter_map(pair).collect()
}

/// The interactions of `data.tsv`, and the lists of all stored users of `model.fastvae`.
fn given_and_listed(place: &Place) -> (Pairs, Pairs) {
    place.output(&["recommend", "model.fastvae", "--users", "all", "-n", "20", "-o", "lists.csv"]);
    let read = |name| std::fs::read_to_string(place.path(name)).unwrap();
    (pairs(&read("data.tsv"), '\t'), pairs(&read("lists.csv"), ','))
}

/// A small catalogue as text: `data.tsv`.
fn with_text() -> Place {
    let place = Place::new();
    let sizes = ["--users", "300", "--items", "120", "--interactions", "6000", "--genres", "6"];
    place.output(&[&["generate", "-o", "data.tsv"], &sizes[..]].concat());
    place
}

fn call(more: &[&'static str]) -> Vec<&'static str> {
    let mut call =
        vec!["train", "data.tsv", "-o", "model.fastvae", "--set", "hidden=32", "--set", "latent=16"];
    call.extend(["--set", "codewords=4", "--set", "batch=64", "--epochs", "6"]);
    // So few that they are little of the data; and a network, which data so small would do without.
    call.extend(["--set", "validation_users=30", "--set", "ridge.weight=2"]);
    call.extend(more);
    call
}

fn numbers(of: &Value) -> (u64, u64) {
    (of["interactions"].as_u64().unwrap(), of["of"].as_u64().unwrap())
}

#[test]
fn without_a_split_the_model_is_of_all_that_was_given() {
    let place = with_text();
    let n = place.json(&["inspect", "data.tsv"])["interactions"].as_u64().unwrap();
    // A validation part of a tenth of the users is little: it is left aside.
    let trained = place.json(&call(&["--store-users"]));
    let (learned, of) = numbers(&trained["learned"]);
    assert!(of == n && learned < n && learned as f64 > 0.98 * n as f64, "{trained}");
    assert_eq!((&trained["learned"]["refit"], &trained["refit_epochs"]), (&false.into(), &0.into()));
    assert!(trained["ndcg@50"].is_null() && trained["validation"]["ndcg@50"].is_number(), "{trained}");
    assert!(trained["validation"]["standard_errors"]["ndcg@50"].is_number(), "{trained}");
    let (given, listed) = given_and_listed(&place);
    assert!(
        listed.len() > 300 * 15 && listed.is_disjoint(&given),
        "items that users have are listed to them"
    );
    let text = place.output(&call(&[]));
    assert!(text.contains("% of the interactions") && text.contains("validation part"), "{text}");
    assert!(!text.contains("all interactions"), "{text}");
}

#[test]
fn a_validation_part_that_matters_is_learned_in_the_end() {
    let place = Place::new();
    let sizes = ["--users", "300", "--items", "60", "--interactions", "900"];
    place.output(&[&["generate", "-o", "data.tsv"], &sizes[..]].concat());
    let trained = place.json(&call(&["--store-users"]));
    let (learned, of) = numbers(&trained["learned"]);
    assert!(learned == of && trained["learned"]["refit"] == true, "{trained}");
    assert_eq!(trained["refit_epochs"], trained["best_epoch"]);
    let shown = place.output(&["inspect", "model.fastvae"]);
    assert!(shown.contains("all interactions") && shown.contains("once these were chosen"), "{shown}");
    let (given, listed) = given_and_listed(&place);
    assert!(listed.is_disjoint(&given));
}

#[test]
fn where_the_linear_part_alone_is_better_it_is_what_is_saved_and_learns_from_all() {
    let place = with_text();
    // A network that learns nothing.
    let train = ["train", "data.tsv", "-o", "model.fastvae", "--epochs", "1", "--set", "learning_rate=1e-6"];
    let train = [&train[..], &["--store-users"]].concat();
    for more in [&[][..], &["--split", "ratio:0.8", "--refit"], &["--set", "validation_users=3"]] {
        let trained = place.json(&[&train[..], more].concat());
        let (learned, of) = numbers(&trained["learned"]);
        assert!(learned == of && trained["blend"]["without_network"] == true, "{trained}");
        assert_eq!(trained["config"]["model"], "item-ridge");
        let shown = place.output(&["inspect", "model.fastvae"]);
        assert!(shown.contains("without the network") && shown.contains("item-ridge"), "{shown}");
        let (given, listed) = given_and_listed(&place);
        assert!(listed.is_disjoint(&given));
    }
}

#[test]
fn with_a_split_it_is_measured_and_a_refit_learns_the_rest() {
    let place = with_text();
    let part = place.json(&call(&["--split", "ratio:0.8", "--store-users"]));
    let (learned, of) = numbers(&part["learned"]);
    assert!((learned as f64) < 0.82 * of as f64 && part["ndcg@50"].is_number(), "{part}");
    let shown = place.output(&["inspect", "model.fastvae"]);
    assert!(shown.contains("% of the interactions") && shown.contains("split ratio:0.8"), "{shown}");
    // What was held out is stored all the same: nobody is shown what they have.
    let (given, listed) = given_and_listed(&place);
    assert!(listed.is_disjoint(&given));

    let all = place.json(&call(&["--split", "ratio:0.8", "--refit"]));
    let (learned, of) = numbers(&all["learned"]);
    assert!(learned == of && all["learned"]["refit"] == true, "{all}");
    // What was measured is of the model before it had seen the held-out part.
    assert_eq!(all["ndcg@50"], part["ndcg@50"]);
    assert_eq!(place.json(&["inspect", "model.fastvae"])["ndcg@50"], part["ndcg@50"]);
    let knn =
        ["train", "data.tsv", "-o", "knn.fastvae", "--model", "item-knn", "--split", "ratio:0.8", "--refit"];
    let knn = place.json(&knn);
    assert_eq!(knn["learned"]["interactions"], knn["learned"]["of"]);
}

#[test]
fn rows_of_a_test_file_are_neither_learned_nor_stored() {
    let place = with_text();
    let text = std::fs::read_to_string(place.path("data.tsv")).unwrap();
    let part = |test: bool| -> String {
        let lines = text.split_inclusive('\n').enumerate();
        lines.filter(|(at, _)| (at % 5 == 0) == test).map(|(_, line)| line).collect()
    };
    std::fs::write(place.path("test.tsv"), part(true)).unwrap();
    std::fs::write(place.path("data.tsv"), part(false)).unwrap();
    let n = place.json(&["inspect", "data.tsv"])["interactions"].as_u64().unwrap();
    let trained = place.json(&call(&["--test", "test.tsv", "--store-users"]));
    assert!(numbers(&trained["learned"]).1 == n && trained["measured_on"] == "test.tsv", "{trained}");
    let (given, listed) = given_and_listed(&place);
    let test = pairs(&part(true), '\t');
    assert!(listed.is_disjoint(&given) && !listed.is_disjoint(&test), "test items may still be listed");
}

#[test]
fn a_model_that_nobody_keeps_and_a_metric_of_nothing_are_said() {
    let place = with_text();
    let mut call = call(&["--split", "none"]);
    call.drain(2..4);
    let output = place.fastvae(&call).output().unwrap();
    let (told, shown) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(told.contains("dropped") && told.contains("-o MODEL"), "{told}");
    // What is shown is the validation part's, by name.
    assert!(shown.contains("validation part") && !shown.contains("measured on held-out"), "{shown}");
    // A file of titles is no file of interactions.
    let titles = "1::Toy Story (1995)::Comedy\n2::Heat (1995)::Crime|Drama\n3::Casino::Drama\n4::Father of the Bride::\n";
    std::fs::write(place.path("movies.dat"), titles.to_string() + "7::Sabrina (1995)::Comedy\n").unwrap();
    let error = place.failure(&["inspect", "movies.dat"], 1);
    assert!(error.contains("movies.dat") && error.contains("--titles"), "{error}");
}
