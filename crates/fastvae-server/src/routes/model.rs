//! What is served and how it fares: `/v1/model`, `/v1/reload`, `/healthz`, `/readyz`, `/metrics`.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fastvae::model_file::FORMAT;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::problem::{Problem, ProblemBody};
use crate::wire::{Health, ModelResponse, ReloadResponse};

/// What is served: sizes, metrics, training curves, limits
#[utoipa::path(
    get, path = "/v1/model", tag = "model",
    responses(
        (status = 200, description = "The model", body = ModelResponse),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
    ),
)]
pub(crate) async fn model(State(app): State<App>) -> Json<ModelResponse> {
    let served = app.served();
    let (model, description) = (&served.model, served.model.description());
    let parameters = model.parameters();
    Json(ModelResponse {
        model: served.name.clone(),
        loaded_at: served.loaded_at,
        generation: served.generation,
        n_items: model.n_items(),
        stored_users: model.users().map_or(0, |users| users.n_users()),
        titles: model.titles().is_some(),
        hidden: parameters.hidden(),
        latent: parameters.latent(),
        vectors: app.store().vectors(),
        n_parameters: parameters.n_parameters(),
        format: FORMAT,
        library_version: description.trained_by.clone(),
        search: served.search.as_ref().map(|search| json(&search.calibration())),
        statistics: description.statistics.clone(),
        evaluation: description.evaluation.as_ref().map(json),
        epochs: description.epochs.clone(),
        config: json(&description.config),
        limits: *app.limits(),
    })
}

/// A value of the library as JSON.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("descriptions of models are JSON")
}

/// Loads the model file again
#[utoipa::path(
    post, path = "/v1/reload", tag = "model",
    responses(
        (status = 200, description = "The file was loaded and is served", body = ReloadResponse),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 403, description = "The request comes from a page of another site", body = ProblemBody),
        (status = 409, description = "The file cannot be loaded; the old model stays", body = ProblemBody),
    ),
)]
pub(crate) async fn reload(State(app): State<App>) -> Result<Json<ReloadResponse>, Problem> {
    let loading = tokio::task::spawn_blocking(move || app.reload());
    match loading.await {
        Ok(Ok(served)) => {
            Ok(Json(ReloadResponse { model: served.name.clone(), generation: served.generation }))
        }
        Ok(Err(error)) => {
            let message = format!("the model was not reloaded and the old one stays: {error}");
            Err(Problem::new(StatusCode::CONFLICT, message))
        }
        Err(_) => Err(Problem::internal()),
    }
}

/// Whether the service lives
#[utoipa::path(
    get, path = "/healthz", tag = "health",
    responses((status = 200, description = "It does", body = Health)),
)]
pub(crate) async fn healthz() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Whether the service has a model and can compute
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses(
        (status = 200, description = "It can", body = Health),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn readyz(State(app): State<App>) -> Result<Json<Health>, Problem> {
    app.compute(|_| Ok(Json(Health { status: "ok" }))).await
}

/// Counts and times, as Prometheus reads them
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses(
        (status = 200, description = "The metrics", body = String, content_type = "text/plain"),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
    ),
)]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.observer().render()).into_response()
}
