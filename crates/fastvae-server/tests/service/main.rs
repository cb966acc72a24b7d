//! The service as its clients meet it: routes without a socket, then connections, reloads and the end.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bad_input;
mod connections;
mod contract;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use fastvae::data::{GenerateOptions, Interactions};
use fastvae::internals::data::Generator;
use fastvae::internals::model::ModelInternals;
use fastvae::internals::network::Parameters;
use fastvae::recommend::SearchOptions;
use fastvae::{Config, Model};
use fastvae_server::{App, Options, router};
use http_body_util::BodyExt;
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

const N_ITEMS: usize = 400;

/// A service over a random model in a directory of its own.
struct Service {
    directory: TempDir,
    app: App,
}

fn generator() -> Generator {
    let mut options = GenerateOptions::default();
    (options.users, options.items, options.interactions, options.genres) = (60, N_ITEMS, 900, 8);
    Generator::new(options).unwrap()
}

fn model(seed: u64, with_users: bool) -> Model {
    let data = generator().interactions().unwrap();
    let model = random_model(seed, &data);
    if with_users { model.with_users(Arc::new(data)).unwrap() } else { model }
}

/// A variational autoencoder that has learned nothing, for `data`.
fn random_model(seed: u64, data: &Interactions) -> Model {
    let config = Config { hidden: 24, latent: 16, codewords: 8, seed, ..Config::default() };
    let parameters = Parameters::random(&config, N_ITEMS);
    let ids = Arc::clone(data.item_ids());
    let mut model = Model::of_parameters(&config, parameters, ids, data.item_counts()).unwrap();
    let mut search = SearchOptions::default();
    search.codewords = Some(8);
    model.calibrate(Some(data), &search).unwrap();
    model.with_titles(generator().titles()).unwrap()
}

impl Service {
    fn with(options: Options, with_users: bool) -> Self {
        Self::of(&model(1, with_users), options)
    }

    fn of(model: &Model, options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.fastvae");
        model.save(&path).unwrap();
        let app = App::open(&path, options).unwrap();
        Self { directory, app }
    }

    fn new() -> Self {
        Self::with(Options { threads: 2, ..Options::default() }, true)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("shop.fastvae")
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        router(self.app.clone()).oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        body(self.send(Request::get(path).body(Body::empty()).unwrap()).await).await
    }

    async fn post(&self, path: &str, body_text: impl Into<Body>) -> (StatusCode, Value) {
        let request =
            Request::post(path).header("content-type", "application/json").body(body_text.into()).unwrap();
        body(self.send(request).await).await
    }

    async fn recommend(&self, request: Value) -> Value {
        let (status, answer) = self.post("/v1/recommend", request.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }
}

async fn body(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn items(answer: &Value) -> Vec<String> {
    let list = answer["recommendations"].as_array().unwrap();
    list.iter().map(|entry| entry["item"].as_str().unwrap().to_string()).collect()
}
