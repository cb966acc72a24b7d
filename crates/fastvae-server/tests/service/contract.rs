//! Whatever method a file holds, HTTP gives the library's answers: weights, knobs, filters, reasons and fallbacks included.

use std::sync::Arc;

use axum::http::StatusCode;
use fastvae::Model;
use fastvae::baseline::Kind;
use fastvae::data::{IdMap, Interactions};
use fastvae::recommend::{ListOptions, Request, Seen};
use fastvae::train::Control;
use fastvae_server::Options;
use serde_json::{Value, json};

use crate::{N_ITEMS, Service, generator, items, random_model};

const KINDS: [Kind; 5] = [Kind::ItemKnn, Kind::Wrmf, Kind::Ease, Kind::Popularity, Kind::Bpr];

/// Users u0, u1 and so on, with weights from 1 to 7.
fn data() -> Arc<Interactions> {
    let plain = generator().interactions().unwrap();
    let weights = (0..plain.n_interactions()).map(|at| (1 + at * 5 % 7) as f32).collect();
    let (offsets, listed) = (plain.offsets().to_vec(), plain.items().to_vec());
    let users = IdMap::from_strings((0..plain.n_users()).map(|user| format!("u{user}"))).unwrap();
    let ids = Arc::clone(plain.item_ids());
    Arc::new(Interactions::from_parts(offsets, listed, Some(weights), None, Arc::new(users), ids).unwrap())
}

fn fitted(kind: Kind, with_users: bool) -> Model {
    let data = data();
    let model = fastvae::fit(Arc::clone(&data), &kind.settings(), |_| Control::Continue).unwrap();
    let model = model.with_titles(generator().titles()).unwrap();
    if with_users { model.with_users(data).unwrap() } else { model }
}

/// A service for each method, over weighted data with stored users.
fn services() -> Vec<Service> {
    let vae = random_model(1, &data()).with_users(data()).unwrap();
    let models = KINDS.into_iter().map(|kind| fitted(kind, true)).chain([vae]);
    models.map(|model| Service::of(&model, Options { threads: 2, ..Options::default() })).collect()
}

fn weighted(item: &str, weight: f32) -> Seen {
    Seen { item: item.to_string(), weight: Some(weight) }
}

/// Requests over HTTP with the same to the library.
fn questions() -> Vec<(Value, Request)> {
    let some = || [Seen::from("3"), weighted("17", 5.0), Seen::from("42")];
    let with = |change: fn(&mut ListOptions)| {
        let mut list = ListOptions::default();
        change(&mut list);
        list
    };
    let history = json!([3, { "item": 17, "weight": 5 }, { "item": "42" }]);
    let of_user = |list: ListOptions| Request::of_user("u5").with(list);
    let mut both = Request::of([weighted("17", 2.5), Seen::from("no such item")]);
    both.user = Some("u5".to_string());
    let mut filtered = of_user(with(|list| list.keep_seen = true));
    filtered.exclude = (0..200).map(|item: usize| item.to_string()).chain(["nothing".to_string()]).collect();
    let mut among = of_user(with(|list| list.n = 3));
    among.only = Some(["9", "3", "5", "250", "251", "x"].map(str::to_string).to_vec());
    let excluded: Vec<Value> = (0..200).map(Value::from).chain([json!("nothing")]).collect();
    vec![
        (json!({ "history": history }), Request::of(some())),
        (
            json!({ "history": history, "explain": true, "n": 5 }),
            Request::of(some()).with(with(|list| (list.n, list.reasons) = (5, 3))),
        ),
        (json!({ "user": "u5" }), of_user(ListOptions::default())),
        (json!({ "user": "u5", "history": [{ "item": 17, "weight": 2.5 }, "no such item"] }), both),
        (json!({ "user": "u5", "explain": true }), of_user(with(|list| list.reasons = 3))),
        (
            json!({ "user": "u5", "popularity_penalty": 0.5 }),
            of_user(with(|list| list.knobs.popularity_penalty = 0.5)),
        ),
        (json!({ "user": "u5", "diversity": 0.7 }), of_user(with(|list| list.knobs.diversity = 0.7))),
        (
            json!({ "user": "u5", "temperature": 2, "seed": 9 }),
            of_user(with(|list| (list.knobs.temperature, list.knobs.seed) = (2.0, 9))),
        ),
        (json!({ "user": "u5", "approximate": true }), of_user(with(|list| list.approximate = true))),
        (json!({ "user": "u5", "exclude": excluded, "exclude_seen": false }), filtered),
        (json!({ "user": "u5", "only": [9, 3, 5, 250, 251, "x"], "n": 3 }), among),
        (json!({}), Request::default()),
        (
            json!({ "history": ["no such item"], "n": 4 }),
            Request::of(["no such item"]).with(ListOptions::best(4)),
        ),
        (json!({ "user": "nobody" }), Request::of_user("nobody")),
    ]
}

/// As it comes over the wire, where floats are decimal.
fn on_wire(value: &impl serde::Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_answers_as_the_library_does() {
    for service in services() {
        let served = service.app.served();
        let kind = served.model.name();
        for (body, request) in questions() {
            let expected = served.model.ask(std::slice::from_ref(&request)).remove(0);
            let (status, answer) = service.post("/v1/recommend", body.to_string()).await;
            let response = match expected {
                Ok(response) => response,
                Err(error) => {
                    assert!(
                        status == StatusCode::BAD_REQUEST || status == StatusCode::NOT_FOUND,
                        "{kind} {body}: {answer}"
                    );
                    assert_eq!(answer["error"], json!(error.to_string()), "{kind} {body}");
                    continue;
                }
            };
            assert_eq!(status, StatusCode::OK, "{kind} {body}: {answer}");
            assert_eq!(answer["recommendations"], on_wire(&response.items), "{kind} {body}");
            assert_eq!(answer["unknown"], json!(response.unknown), "{kind} {body}");
            assert_eq!(answer["fallback"], on_wire(&response.fallback), "{kind} {body}");
            assert_eq!(answer["method"] == "approximate", response.is_approximate, "{kind} {body}");
            let searches = body["approximate"] == true && ["fastvae", "wrmf", "bpr"].contains(&kind);
            assert_eq!(response.is_approximate, searches, "{kind} {body}");
            let batch = json!({ "requests": [{ "n": 1 }, body] });
            let (_, batch) = service.post("/v1/recommend/batch", batch.to_string()).await;
            assert_eq!(batch["results"][1], answer, "{kind}");
        }
    }
}

#[tokio::test]
async fn stored_weights_and_weights_of_a_request_count() {
    let ids = Arc::new(IdMap::from_strings(["even", "uneven"]).unwrap());
    let weights = vec![1.0, 1.0, 1.0, 1.0, 5.0, 1.0];
    for kind in ["fastvae", "item-knn"] {
        let model = match kind {
            "fastvae" => random_model(1, &data()),
            _ => fitted(Kind::ItemKnn, false),
        };
        let items = Arc::clone(model.item_ids());
        let listed = vec![3, 17, 42, 3, 17, 42];
        let users = Interactions::from_parts(
            vec![0, 3, 6],
            listed,
            Some(weights.clone()),
            None,
            Arc::clone(&ids),
            items,
        );
        let model = model.with_users(Arc::new(users.unwrap())).unwrap();
        let service = Service::of(&model, Options { threads: 1, ..Options::default() });
        let even = service.recommend(json!({ "user": "even" })).await;
        let uneven = service.recommend(json!({ "user": "uneven" })).await;
        assert_ne!(even["recommendations"], uneven["recommendations"], "{kind}");
        let history = json!([42, { "item": 17, "weight": 5.0 }, { "item": "3", "weight": 1 }]);
        assert_eq!(service.recommend(json!({ "history": history })).await, uneven, "{kind}");
        assert_eq!(
            service.recommend(json!({ "history": [3, 17, 42] })).await["recommendations"],
            even["recommendations"],
            "{kind}"
        );
    }
}

#[tokio::test]
async fn who_is_unknown_gets_a_list_that_says_so() {
    for service in services() {
        let kind = service.app.served().model.name();
        let expected = if kind == "fastvae" { "nobody" } else { "popularity" };
        for body in
            [json!({}), json!({ "history": [] }), json!({ "history": ["a", { "item": "b", "weight": 2 }] })]
        {
            let answer = service.recommend(body.clone()).await;
            assert_eq!((&answer["fallback"], items(&answer).len()), (&json!(expected), 10), "{kind} {body}");
        }
        assert_eq!(service.recommend(json!({ "user": "u5" })).await["fallback"], json!(null), "{kind}");
    }
    let service = Service::of(&fitted(Kind::Ease, false), Options::default());
    let (_, popular) = service.get("/v1/items?n=3").await;
    let most: Vec<&str> =
        popular["items"].as_array().unwrap().iter().map(|item| item["item"].as_str().unwrap()).collect();
    assert_eq!(items(&service.recommend(json!({ "n": 3 })).await), most);
}

#[tokio::test]
async fn a_method_that_learned_its_users_knows_them_without_histories() {
    let service = Service::of(&fitted(Kind::Bpr, false), Options::default());
    let answer = service.recommend(json!({ "user": "u5", "n": N_ITEMS })).await;
    assert_eq!(
        (&answer["fallback"], items(&answer).len()),
        (&json!(null), N_ITEMS),
        "nothing is known to be seen"
    );
    let other = service.recommend(json!({ "user": "u6", "n": N_ITEMS })).await;
    assert_ne!(items(&answer), items(&other));
    let picked = service.recommend(json!({ "user": "u5", "history": [3], "n": N_ITEMS })).await;
    assert_eq!(items(&picked).len(), N_ITEMS - 1);
    let (status, problem) = service.post("/v1/recommend", r#"{"user": "nobody"}"#).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(problem["error"].as_str().unwrap().contains("the 60 that bpr learned"), "{problem}");
    let (status, problem) = service.post("/v1/recommend", r#"{"history": [3]}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(problem["error"].as_str().unwrap().contains("name a user of the training data"), "{problem}");
    assert_eq!(service.get("/v1/model").await.1["learned_users"], json!(60));
}

#[tokio::test]
async fn a_model_without_a_network_says_what_it_is() {
    for kind in KINDS {
        let service = Service::of(&fitted(kind, true), Options { threads: 1, ..Options::default() });
        let (status, answer) = service.get("/v1/model").await;
        assert_eq!(status, StatusCode::OK, "{kind}: {answer}");
        assert_eq!(answer["kind"], json!(kind.name()));
        assert_eq!((&answer["hidden"], &answer["n_parameters"]), (&json!(null), &json!(null)), "{kind}");
        assert_eq!(answer["latent"].is_number(), matches!(kind, Kind::Wrmf | Kind::Bpr), "{kind}");
        let n = data().n_interactions();
        assert_eq!(
            (&answer["learned"]["interactions"], &answer["learned"]["of"]),
            (&json!(n), &json!(n)),
            "{kind}"
        );
        assert_eq!((&answer["epochs"], &answer["stored_users"]), (&json!([]), &json!(60)), "{kind}");
        assert_eq!(answer["config"]["model"], json!(kind.name()));
        let similar = service.get("/v1/items/42/similar?n=4").await;
        assert!(similar.0 == StatusCode::OK || kind == Kind::Popularity, "{kind}: {similar:?}");
        assert!(service.get("/metrics").await.1.as_str().unwrap().contains("fastvae_model_items 400"));
    }
}

#[tokio::test]
async fn weights_as_large_as_numbers_get_are_no_defect_of_the_service() {
    for service in services() {
        let kind = service.app.served().model.name();
        for weight in [1e-37, 1e10, 3e38] {
            let seen: Vec<Value> =
                [3, 17, 42, 99, 123].map(|item| json!({ "item": item, "weight": weight })).to_vec();
            for body in [
                json!({ "history": seen, "explain": true }),
                json!({ "history": seen, "user": "u5", "diversity": 0.5 }),
            ] {
                let (status, answer) = service.post("/v1/recommend", body.to_string()).await;
                assert!(
                    status == StatusCode::OK || status == StatusCode::BAD_REQUEST,
                    "{kind} {weight}: {answer}"
                );
                let numbers = answer["recommendations"].as_array().into_iter().flatten();
                assert!(
                    numbers.into_iter().all(|entry| entry["score"].is_number()),
                    "{kind} {weight}: {answer}"
                );
            }
        }
    }
}
