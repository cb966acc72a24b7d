//! Parts of a request, with refusals that are [`Problem`]s.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::problem::Problem;

/// A body of JSON.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        // Browsers may send other kinds across sites without asking, so this is a guard as well.
        if kind != "application/json" && !kind.ends_with("+json") {
            let message = "send JSON, with the header `content-type: application/json`";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let limits = app.limits();
        let bytes = match tokio::time::timeout(limits.time, Bytes::from_request(request, app)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(refusal)) if refusal.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let message = format!("the body is longer than {} bytes; send less", limits.body_bytes);
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            Ok(Err(refusal)) => return Err(Problem::bad_request(refusal.body_text())),
            Err(_) => {
                let message = format!("the body did not arrive within {} s", limits.time.as_secs_f64());
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, message));
            }
        };
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|error| Problem::bad_request(format!("the body is not what this route takes: {error}")))
    }
}

/// The query of an address.
#[derive(Debug)]
pub struct Parameters<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(refusal) => Err(Problem::bad_request(refusal.body_text())),
        }
    }
}

/// The identifier in a path.
#[derive(Debug)]
pub struct InPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(refusal) => Err(Problem::bad_request(refusal.body_text())),
        }
    }
}
