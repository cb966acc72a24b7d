//! Everything a client can get wrong is a 4xx with a message, never a 5xx.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use fastvae_server::{Limits, Options};
use serde_json::json;

use crate::{Service, body};

#[tokio::test]
async fn bodies_that_are_not_what_a_route_takes_are_refused_with_a_message() {
    let service = Service::new();
    let deep = format!("{{\"history\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let long = json!({ "history": vec![1; 1001] }).to_string();
    let wide = json!({ "exclude": vec![1; 10_001] }).to_string();
    for text in [
        "",
        "{",
        "null",
        "[]",
        "\"text\"",
        "{\"history\": [NaN]}",
        "{\"history\": [1e999]}",
        "{\"history\": [1.5]}",
        "{\"history\": [[1]]}",
        "{\"history\": [[1, 2.0]]}",
        "{\"history\": [{}]}",
        "{\"history\": [{\"weight\": 2}]}",
        "{\"history\": [{\"item\": 3, \"weight\": \"2\"}]}",
        "{\"history\": [{\"item\": 3, \"count\": 2}]}",
        "{\"history\": [{\"item\": 3, \"weight\": 1, \"weight\": 2}]}",
        "{\"history\": [{\"item\": 1.5}]}",
        "{\"history\": [null]}",
        "{\"history\": 3}",
        "{\"history\": {\"a\": 1}}",
        "{\"history\": [99999999999999999999999999]}",
        "{\"n\": -1}",
        "{\"n\": 1.5}",
        "{\"n\": -1.0}",
        "{\"n\": 1e30}",
        "{\"n\": \"ten\"}",
        "{\"n\": 1001}",
        "{\"n\": 18446744073709551615}",
        "{\"n\": 99999999999999999999999}",
        "{\"n\": null}",
        "{\"n\": 1, \"n\": 2}",
        "{\"explain\": 1}",
        "{\"diversity\": 1.01}",
        "{\"diversity\": -0.1}",
        "{\"diversity\": 1e60}",
        "{\"popularity_penalty\": 1e308}",
        "{\"popularity_penalty\": \"a\"}",
        "{\"temperature\": -1}",
        "{\"temperature\": Infinity}",
        "{\"seed\": -4}",
        "{\"no_such_field\": 1}",
        "{\"user\": []}",
        "\u{feff}{}",
        &deep,
        &long,
        &wide,
    ] {
        let (status, answer) = service.post("/v1/recommend", text.to_string()).await;
        let shown: String = text.chars().take(60).collect();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{shown}: {answer}");
        assert!(answer["error"].as_str().unwrap().len() > 10, "{shown}: {answer}");
    }
    let invalid: &[u8] = b"{\"user\": \"\xff\xfe\"}";
    assert_eq!(service.post("/v1/recommend", invalid).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn weights_that_nothing_can_be_multiplied_with_are_refused_with_their_value() {
    let service = Service::new();
    for weight in ["0", "-0.5", "1e60", "1e-60"] {
        let text = format!("{{\"history\": [3, {{\"item\": 42, \"weight\": {weight}}}]}}");
        let (status, answer) = service.post("/v1/recommend", text).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{weight}: {answer}");
        let message = answer["error"].as_str().unwrap();
        let value = weight.parse::<f64>().unwrap();
        assert!(message.contains(&format!("`42` is {value}; give a finite number above 0")), "{message}");
    }
    let huge = r#"{"history": [{"item": 3, "weight": 3e38}, {"item": 17, "weight": 3e38}], "explain": true}"#;
    assert_eq!(
        service.post("/v1/recommend", huge).await.0,
        StatusCode::OK,
        "they are divided by their length"
    );
}

#[tokio::test]
async fn batches_are_bounded_and_name_what_is_wrong() {
    let service = Service::new();
    let many = json!({ "requests": vec![json!({}); 101] });
    for (text, hint) in [
        (many.to_string(), "at most 100"),
        ("{\"requests\": [{\"n\": 5000}]}".to_string(), "at most 1000"),
        ("{\"requests\": {}}".to_string(), "sequence"),
        ("{}".to_string(), "requests"),
        ("[[]]".to_string(), "expected an object"),
        ("{\"requests\": [[[3]]]}".to_string(), "expected an object"),
    ] {
        let (status, answer) = service.post("/v1/recommend/batch", text.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text} {answer}");
        assert!(answer["error"].as_str().unwrap().contains(hint), "{answer}");
    }
    let unknown = r#"{"requests": [{}, {"user": "nobody"}]}"#;
    assert_eq!(service.post("/v1/recommend/batch", unknown).await.0, StatusCode::NOT_FOUND);
    assert_eq!(service.post("/api/session/recommend", "{}").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(service.post("/api/session/recommend", "[{}]").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn addresses_and_queries_are_checked() {
    let service = Service::new();
    for (path, expected) in [
        ("/v1/items?n=-1", StatusCode::BAD_REQUEST),
        ("/v1/items?n=ten", StatusCode::BAD_REQUEST),
        ("/v1/items?n=1001", StatusCode::BAD_REQUEST),
        ("/v1/items?n=99999999999999999999", StatusCode::BAD_REQUEST),
        ("/v1/items?q=a", StatusCode::BAD_REQUEST),
        ("/v1/items?query=%ff%fe", StatusCode::OK),
        ("/v1/items?query=%00", StatusCode::OK),
        ("/v1/items/%ff", StatusCode::BAD_REQUEST),
        ("/v1/items/1/similar?n=1e3", StatusCode::BAD_REQUEST),
        ("/v1/items/9999", StatusCode::NOT_FOUND),
        ("/v1/items/..%2f..%2fetc%2fpasswd", StatusCode::NOT_FOUND),
        ("/assets/../Cargo.toml", StatusCode::NOT_FOUND),
        ("/api/recommend/nobody", StatusCode::NOT_FOUND),
        ("/no/such/route", StatusCode::NOT_FOUND),
        ("/v1/recommend", StatusCode::METHOD_NOT_ALLOWED),
        ("/v1/reload", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let (status, answer) = service.get(path).await;
        assert_eq!(status, expected, "{path}: {answer}");
        if status != StatusCode::OK {
            assert_eq!(answer["status"], json!(expected.as_u16()), "{path}: {answer}");
        }
    }
    let long = format!("/v1/items?query={}", "a".repeat(5000));
    assert_eq!(service.get(&long).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn only_json_and_only_so_much_of_it_is_read() {
    let limits = Limits { body_bytes: 1000, ..Limits::default() };
    let service = Service::with(Options { limits, threads: 1, ..Options::default() }, false);
    let padded = format!("{{\"n\": 1{}}}", " ".repeat(2000));
    let (status, answer) = service.post("/v1/recommend", padded).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(answer["error"].as_str().unwrap().contains("1000 bytes"), "{answer}");
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request =
            Request::post("/v1/recommend").header("content-type", kind).body(Body::from("{}")).unwrap();
        assert_eq!(service.send(request).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let none = Request::post("/v1/recommend").body(Body::from("{}")).unwrap();
    assert_eq!(service.send(none).await.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn pages_of_other_sites_cannot_make_a_browser_act() {
    let service = Service::new();
    let from = |origin: &str| {
        let request = Request::post("/v1/reload").header("host", "127.0.0.1:8080").header("origin", origin);
        request.body(Body::empty()).unwrap()
    };
    let (status, answer) = body(service.send(from("http://evil.example")).await).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    assert_eq!(service.send(from("null")).await.status(), StatusCode::FORBIDDEN);
    assert_eq!(service.send(from("http://127.0.0.1:8080")).await.status(), StatusCode::OK);
}
