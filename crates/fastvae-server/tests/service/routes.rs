//! Every route, as documented.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use fastvae::recommend::{ListOptions, Question};
use fastvae_server::{ApiKey, Options, Vectors};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{Service, items, model};

#[tokio::test]
async fn a_history_gives_the_list_of_the_library() {
    let service = Service::new();
    let answer = service.recommend(json!({ "history": ["3", 17, "42"], "n": 7 })).await;
    let question = Question::of([3, 17, 42]).with(ListOptions::best(7));
    let expected = model(1, false).recommend(&question).unwrap();
    let expected_items: Vec<String> = expected.iter().map(|scored| scored.item.to_string()).collect();
    assert_eq!(items(&answer), expected_items);
    let score = answer["recommendations"][0]["score"].as_f64().unwrap();
    assert!((score - f64::from(expected[0].score)).abs() < 1e-6);
    assert_eq!(answer["method"], "exact");
    assert!(answer["model"].as_str().unwrap().starts_with("shop-"), "{answer}");
    assert!(answer["recommendations"][0]["title"].is_string());
    assert!(answer["recommendations"][0].get("because").is_none(), "not asked for");
}

#[tokio::test]
async fn unknown_items_are_reported_and_do_no_harm() {
    let service = Service::new();
    let plain = service.recommend(json!({ "history": [3, 17] })).await;
    let answer =
        service.recommend(json!({ "history": [3, "nobody", 17, -1], "exclude": ["no such"], "n": 10 })).await;
    assert_eq!(items(&answer), items(&plain));
    assert_eq!(answer["unknown"], json!(["nobody", "-1", "no such"]));
}

#[tokio::test]
async fn filters_are_applied_inside_so_that_n_items_come() {
    let service = Service::new();
    let best = items(&service.recommend(json!({ "history": [3], "n": 10 })).await);
    let without = items(&service.recommend(json!({ "history": [3], "n": 10, "exclude": best })).await);
    assert_eq!(without.len(), 10);
    assert!(without.iter().all(|item| !best.contains(item) && item != "3"));
    let only = items(&service.recommend(json!({ "history": [3], "only": ["9", "3", "5"] })).await);
    assert_eq!(only.len(), 2, "3 is seen");
    let seen = service.recommend(json!({ "history": [3], "only": ["9", "3"], "exclude_seen": false })).await;
    assert_eq!(items(&seen).len(), 2);
    assert_eq!(items(&service.recommend(json!({ "n": 0 })).await).len(), 0);
    assert_eq!(items(&service.recommend(json!({ "n": 1000 })).await).len(), crate::N_ITEMS);
}

#[tokio::test]
async fn stored_users_are_known_by_id_and_others_are_not() {
    let service = Service::new();
    let of_user = service.recommend(json!({ "user": 5 })).await;
    let history: Vec<u32> = service.app.served().model.users().unwrap().row(5).items.to_vec();
    assert_eq!(items(&of_user), items(&service.recommend(json!({ "history": history })).await));
    let (status, answer) = service.post("/v1/recommend", r#"{"user": "nobody"}"#).await;
    assert_eq!((status, answer["status"].as_u64()), (StatusCode::NOT_FOUND, Some(404)));
    let without = Service::with(Options { threads: 1, ..Options::default() }, false);
    let (status, answer) = without.post("/v1/recommend", r#"{"user": "5"}"#).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(answer["error"].as_str().unwrap().contains("--store-users"), "{answer}");
}

#[tokio::test]
async fn reasons_are_items_of_the_history_with_their_shares() {
    let service = Service::new();
    let answer = service.recommend(json!({ "history": [3, 17, 42], "explain": true })).await;
    for entry in answer["recommendations"].as_array().unwrap() {
        let because = entry["because"].as_array().unwrap();
        let shares: f64 = because.iter().map(|reason| reason["share"].as_f64().unwrap()).sum();
        assert!(shares <= 1.0 + 1e-5, "{entry}");
        assert!(because.iter().all(|reason| ["3", "17", "42"].contains(&reason["item"].as_str().unwrap())));
        assert!(because.iter().all(|reason| reason["title"].is_string()));
        assert!(because.iter().all(|reason| reason["contribution"].as_f64().unwrap() > 0.0));
    }
}

#[tokio::test]
async fn knobs_change_the_list_and_approximate_lists_say_so() {
    let service = Service::new();
    let plain = items(&service.recommend(json!({ "history": [3, 17] })).await);
    for knob in [
        json!({ "popularity_penalty": 2 }),
        json!({ "diversity": 1 }),
        json!({ "temperature": 10, "seed": 4 }),
    ] {
        let mut request = json!({ "history": [3, 17] });
        request.as_object_mut().unwrap().extend(knob.as_object().unwrap().clone());
        let answer = service.recommend(request.clone()).await;
        assert_ne!(items(&answer), plain, "{knob}");
        assert_eq!(
            items(&service.recommend(request).await),
            items(&answer),
            "the same request, the same list"
        );
    }
    let answer = service.recommend(json!({ "history": [3, 17], "approximate": true })).await;
    assert_eq!(answer["method"], "approximate");
    assert_eq!(items(&answer).len(), 10);
    let tight = service.recommend(json!({ "approximate": true, "only": [1, 2] })).await;
    assert_eq!((tight["method"].as_str(), items(&tight).len()), (Some("exact"), 2));
}

#[tokio::test]
async fn batches_answer_in_the_order_of_their_requests() {
    let service = Service::new();
    let batch = json!({ "requests": [{ "history": [3] }, { "user": "5", "n": 2 }] });
    let (status, answer) = service.post("/v1/recommend/batch", batch.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    let results = answer["results"].as_array().unwrap();
    assert_eq!(
        results[0]["recommendations"],
        service.recommend(json!({ "history": [3] })).await["recommendations"]
    );
    assert_eq!(items(&results[1]).len(), 2);
}

#[tokio::test]
async fn items_are_found_by_words_and_identifiers() {
    let service = Service::new();
    let title = service.app.served().model.title(42).unwrap().to_string();
    let encoded = title.replace(' ', "+").replace('(', "%28").replace(')', "%29");
    let (_, answer) = service.get(&format!("/v1/items?query={encoded}&n=3")).await;
    assert_eq!((&answer["items"][0]["item"], &answer["items"][0]["title"]), (&json!("42"), &json!(title)));
    let inside = title.split(' ').next().unwrap()[1..].to_uppercase();
    let (_, answer) = service.get(&format!("/v1/items?query={inside}&n=400")).await;
    let found = answer["items"].as_array().unwrap();
    assert!(found.iter().any(|entry| entry["item"] == "42"), "upper case, from inside a word");
    assert!(found.iter().all(|entry| entry["title"].as_str().unwrap().to_uppercase().contains(&inside)));
    let (_, answer) = service.get("/v1/items?query=399").await;
    assert_eq!(answer["items"][0]["item"], "399");
    let (_, popular) = service.get("/v1/items?n=5").await;
    let counts: Vec<u64> =
        popular["items"].as_array().unwrap().iter().map(|entry| entry["count"].as_u64().unwrap()).collect();
    assert!(counts.len() == 5 && counts.windows(2).all(|pair| pair[0] >= pair[1]), "{counts:?}");
    assert_eq!(service.get("/v1/items?query=zzzz").await.1["items"], json!([]));
    assert_eq!(service.get("/v1/items/42").await.1["title"], json!(title));
}

#[tokio::test]
async fn similar_items_are_those_of_the_library() {
    let service = Service::new();
    let (status, answer) = service.get("/v1/items/42/similar?n=4").await;
    assert_eq!(status, StatusCode::OK);
    let expected = model(1, false).similar(42, 4).unwrap();
    for (entry, expected) in answer["similar"].as_array().unwrap().iter().zip(&expected) {
        assert_eq!(entry["item"], json!(expected.item.to_string()));
    }
    assert_eq!(answer["similar"].as_array().unwrap().len(), 4);
    assert_eq!(service.get("/v1/items/nobody/similar").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_model_says_what_it_is() {
    let service = Service::new();
    let (status, answer) = service.get("/v1/model").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&answer["n_items"], &answer["stored_users"]), (&json!(400), &json!(60)));
    assert_eq!(
        (&answer["hidden"], &answer["latent"], &answer["generation"]),
        (&json!(24), &json!(16), &json!(1))
    );
    assert!(answer["search"]["recall"].as_f64().unwrap() > 0.8);
    assert_eq!(answer["limits"]["seconds"], json!(10.0));
    assert_eq!(answer["config"]["codewords"], json!(8));
    assert_eq!((&answer["kind"], &answer["learned_users"]), (&json!("fastvae"), &json!(null)));
    assert!(answer["n_parameters"].as_u64().unwrap() > 400 * 16);
}

#[tokio::test]
async fn clients_of_gorse_can_read() {
    let service = Service::new();
    let (status, list) = service.get("/api/recommend/5?n=3").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(list, json!(items(&service.recommend(json!({ "user": 5, "n": 3 })).await)));
    let (_, near) = service.get("/api/item/42/neighbors?n=2").await;
    assert_eq!(near.as_array().unwrap().len(), 2);
    assert!(near[0]["Id"].is_string() && near[0]["Score"].is_number());
    let session =
        json!([{ "FeedbackType": "read", "UserId": "u", "ItemId": "3", "Timestamp": "2020-02-02" }]);
    let (status, list) = service.post("/api/session/recommend?n=3", session.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{list}");
    let expected = items(&service.recommend(json!({ "history": [3], "n": 3 })).await);
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|entry| entry["Id"].as_str().unwrap()).collect();
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn health_and_metrics_are_there() {
    let service = Service::new();
    assert_eq!(service.get("/healthz").await, (StatusCode::OK, json!({ "status": "ok" })));
    assert_eq!(service.get("/readyz").await, (StatusCode::OK, json!({ "status": "ok" })));
    service.get("/v1/items/42").await;
    service.get("/v1/items/nobody").await;
    service.recommend(json!({})).await;
    let (_, text) = service.get("/metrics").await;
    let text = text.as_str().unwrap();
    for line in [
        r#"fastvae_requests_total{route="/v1/items/{id}",status="200"} 1"#,
        r#"fastvae_requests_total{route="/v1/items/{id}",status="404"} 1"#,
        r#"fastvae_request_seconds_bucket{route="/v1/recommend",le="#,
        "fastvae_compute_seconds_count",
        "fastvae_model_items 400",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("nobody"), "identifiers would make endless series");
}

#[tokio::test]
async fn the_page_comes_from_the_binary_and_loads_nothing_from_outside() {
    let service = Service::new();
    let names =
        ["style.css", "app.js", "list.js", "search.js", "model.js", "state.js", "docs.js", "icon.svg"];
    let assets: Vec<String> = names.iter().map(|name| format!("/assets/{name}")).collect();
    for path in ["/", "/docs"].into_iter().chain(assets.iter().map(String::as_str)) {
        let response = service.send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_string();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        let (_, text) = crate::body(response).await;
        let text = text.as_str().unwrap().replace("http://www.w3.org/2000/svg", "");
        assert!(text.len() > 200, "{path}");
        assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("//cdn"), "{path}");
    }
}

#[tokio::test]
async fn the_description_names_every_route() {
    let service = Service::new();
    let (status, description) = service.get("/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    let paths = description["paths"].as_object().unwrap();
    for path in [
        "/v1/recommend",
        "/v1/recommend/batch",
        "/v1/items",
        "/v1/items/{id}",
        "/v1/items/{id}/similar",
        "/v1/model",
        "/v1/reload",
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/recommend/{user-id}",
        "/api/item/{item-id}/neighbors",
        "/api/session/recommend",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    // Every reference leads somewhere.
    let text = description.to_string();
    for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(description["components"]["schemas"].get(name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn a_key_guards_what_computes_and_not_the_page() {
    let key = ApiKey::new("secret");
    let service = Service::with(Options { api_key: key, threads: 1, ..Options::default() }, false);
    for path in ["/", "/docs", "/healthz", "/readyz", "/openapi.json"] {
        assert_eq!(service.get(path).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/v1/model", "/v1/items", "/v1/items/1/similar", "/metrics", "/api/item/1/neighbors"] {
        assert_eq!(service.get(path).await.0, StatusCode::UNAUTHORIZED, "{path}");
        for (name, value, expected) in [
            ("x-api-key", "secret", StatusCode::OK),
            ("authorization", "Bearer secret", StatusCode::OK),
            ("authorization", "Basic secret", StatusCode::UNAUTHORIZED),
            ("x-api-key", "wrong", StatusCode::UNAUTHORIZED),
        ] {
            let request = Request::get(path).header(name, value).body(Body::empty()).unwrap();
            assert_eq!(service.send(request).await.status(), expected, "{path} {name}");
        }
    }
    assert_eq!(service.post("/v1/reload", "").await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_reload_serves_the_new_file_and_a_failed_one_the_old() {
    let service = Service::new();
    let before = service.recommend(json!({ "history": [3] })).await;
    model(2, true).save(service.path()).unwrap();
    let (status, answer) = service.post("/v1/reload", "").await;
    assert_eq!((status, &answer["generation"]), (StatusCode::OK, &json!(2)), "{answer}");
    let after = service.recommend(json!({ "history": [3] })).await;
    assert_ne!(items(&before), items(&after));
    assert_ne!(before["model"], after["model"]);

    // As another program would, by renaming: the mapped file of the old model must not change.
    let broken = service.path().with_extension("broken");
    std::fs::write(&broken, b"not a model").unwrap();
    std::fs::rename(&broken, service.path()).unwrap();
    let (status, answer) = service.post("/v1/reload", "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(answer["error"].as_str().unwrap().contains("the old one stays"), "{answer}");
    assert_eq!(service.recommend(json!({ "history": [3] })).await, after);
    let (_, metrics) = service.get("/metrics").await;
    let metrics: Value = metrics;
    assert!(metrics.as_str().unwrap().contains(r#"fastvae_reloads_total{result="failed"} 1"#));
}

#[tokio::test]
async fn whole_numbers_may_be_written_as_floats() {
    let service = Service::new();
    let plain = service.recommend(json!({ "history": [17], "n": 7, "temperature": 1, "seed": 3 })).await;
    let floats = r#"{"history": [17.0], "n": 7.0, "temperature": 1.0, "seed": 3.0}"#;
    assert_eq!(service.post("/v1/recommend", floats).await, (StatusCode::OK, plain));
}

#[tokio::test]
async fn lists_over_small_vectors_are_those_over_full_ones() {
    let full = Service::new();
    let options = Options { threads: 2, vectors: Vectors::Int8, ..Options::default() };
    let small = Service::with(options, true);
    for history in [json!([17]), json!([3, 90, 250]), json!([])] {
        let request = json!({ "history": history, "n": 20 });
        let (expected, found) = (full.recommend(request.clone()).await, small.recommend(request).await);
        assert_eq!(found["recommendations"], expected["recommendations"]);
    }
    assert_eq!(small.get("/v1/model").await.1["vectors"], "int8");
    assert_eq!(full.get("/v1/model").await.1["vectors"], "f32");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_together_get_the_answers_they_would_get_alone() {
    let service = Service::with(Options { threads: 1, ..Options::default() }, true);
    let request = |at: usize| match at % 5 {
        0 => json!({ "user": "nobody" }),
        1 => json!({ "user": "3", "n": 4 }),
        2 => json!({ "history": [at, "no such item"], "n": 5, "popularity_penalty": 0.5 }),
        _ => json!({ "history": [at, 2 * at], "exclude": [5, 6, at], "n": at }),
    };
    let asked: Vec<_> = (0..64).map(|at| service.post("/v1/recommend", request(at).to_string())).collect();
    let mut together = tokio::task::JoinSet::new();
    for at in 0..64 {
        let router = fastvae_server::router(service.app.clone());
        let body_text = request(at).to_string();
        together.spawn(async move {
            let request = Request::post("/v1/recommend").header("content-type", "application/json");
            let response = router.oneshot(request.body(Body::from(body_text)).unwrap()).await.unwrap();
            (at, crate::body(response).await)
        });
    }
    let mut answers = together.join_all().await;
    answers.sort_by_key(|(at, _)| *at);
    for (alone, (at, answer)) in asked.into_iter().zip(answers) {
        assert_eq!(answer, alone.await, "request {at}");
    }
}
