//! [`router`]: all routes with what surrounds them, to be called with or without a socket.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::problem::Problem;
use crate::routes::{gorse, items, model, page, recommend};
use crate::{auth, observe, openapi};

/// The routes of the service.
pub fn router(app: App) -> Router {
    let guarded = Router::new()
        .route("/v1/recommend", post(recommend::recommend))
        .route("/v1/recommend/batch", post(recommend::batch))
        .route("/v1/items", get(items::find))
        .route("/v1/items/{id}", get(items::item))
        .route("/v1/items/{id}/similar", get(items::similar))
        .route("/v1/model", get(model::model))
        .route("/v1/reload", post(model::reload))
        .route("/api/recommend/{user-id}", get(gorse::recommend))
        .route("/api/item/{item-id}/neighbors", get(gorse::neighbors))
        .route("/api/session/recommend", post(gorse::session))
        .route("/metrics", get(model::metrics))
        .route_layer(middleware::from_fn_with_state(app.clone(), auth::require_key));
    let description = openapi::json();
    let open = Router::new()
        .route("/", get(page::index))
        .route("/docs", get(page::docs))
        .route("/assets/{name}", get(page::asset))
        .route("/favicon.ico", get(page::icon))
        .route("/healthz", get(model::healthz))
        .route("/readyz", get(model::readyz))
        .route(
            "/openapi.json",
            get(move || async move { ([(header::CONTENT_TYPE, "application/json")], description) }),
        );
    guarded
        .merge(open)
        .fallback(|| async { Problem::not_found("there is no such route; see /docs") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this route does not take this method; see /docs")
        })
        .layer(DefaultBodyLimit::max(app.limits().body_bytes))
        .layer(middleware::from_fn(auth::same_site))
        .layer(middleware::from_fn(safe_headers))
        .layer(CatchPanicLayer::custom(after_panic))
        .layer(middleware::from_fn_with_state(app.clone(), observe::observe))
        .with_state(app)
}

/// The answer where a handler panicked; what it said is on standard error.
fn after_panic(_: Box<dyn std::any::Any + Send>) -> Response {
    Problem::internal().into_response()
}

/// Headers that keep a browser from doing more with an answer than it should.
async fn safe_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                  base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
