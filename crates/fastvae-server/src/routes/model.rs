//! What is served and how it fares: `/v1/model`, `/v1/reload`, `/healthz`, `/readyz`, `/metrics`.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fastvae::internals::eval::Scorer;
use fastvae::internals::model::{FORMAT, ModelInternals};
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
    let network = model.network();
    Json(ModelResponse {
        model: served.name.clone(),
        loaded_at: served.loaded_at,
        generation: served.generation,
        n_items: model.n_items(),
        kind: model.name(),
        stored_users: model.users().map_or(0, |users| users.n_users()),
        learned_users: model.user_ids().map(|ids| ids.len()),
        titles: model.titles().is_some(),
        hidden: network.map(|network| network.hidden()),
        latent: model.item_table().map(|table| table.vectors.cols()),
        vectors: app.store().vectors(),
        n_parameters: network.map(|network| network.n_parameters()),
        format: FORMAT,
        library_version: description.library_version.clone(),
        search: description.search.as_ref().map(json),
        statistics: description.statistics.as_ref().map(json),
        learned: description.learned.as_ref().map(json),
        chosen: description.blend.map(|blend| blend.to_string()),
        validation: description.validation.as_ref().map(json),
        evaluation: description.evaluation.as_ref().map(json),
        measured_on: description.measured_on.clone(),
        epochs: json(&description.epochs),
        config: json(&description.settings),
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
