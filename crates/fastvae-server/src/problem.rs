//! [`Problem`]: what went wrong, as a client sees it. Every answer that is not a success has this body.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// A refusal: a status and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    message: String,
    retry_after: bool,
}

/// The body of every answer that is not a success.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemBody {
    /// What is wrong, and what to do.
    error: String,
    /// The status of the answer.
    #[schema(example = 400)]
    status: u16,
}

impl Problem {
    /// A problem with `status`.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: false }
    }

    /// The request cannot be understood or asks for too much.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The service has more to do than it lets wait.
    pub fn busy() -> Self {
        let message = "the service is busy; send the request again later";
        Self { retry_after: true, ..Self::new(StatusCode::TOO_MANY_REQUESTS, message) }
    }

    /// The answer took longer than the service allows.
    pub fn overdue() -> Self {
        let message = "the answer took too long; ask for less, or later";
        Self { retry_after: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// A defect of the service.
    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the service failed on this request; its log says more")
    }
}

/// Bad input is the client's to mend; everything else is a defect, and its text stays in the log.
impl From<fastvae::Error> for Problem {
    fn from(error: fastvae::Error) -> Self {
        match &error {
            fastvae::Error::UnknownId { .. } => Self::not_found(error.to_string()),
            fastvae::Error::Config { key, problem, remedy } => {
                Self::bad_request(format!("`{key}` {problem}; {remedy}"))
            }
            fastvae::Error::Data { .. } => Self::bad_request(error.to_string()),
            _ => {
                tracing::error!(%error, "a request failed");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody { error: self.message, status: self.status.as_u16() };
        let mut response = (self.status, Json(body)).into_response();
        if self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
