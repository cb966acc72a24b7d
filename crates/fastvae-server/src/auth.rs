//! Who may ask: an optional key, and no requests from other sites' pages.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::problem::Problem;

/// A secret that requests must carry; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

impl ApiKey {
    /// The key `text` without white space around it; none where nothing is left.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_string()))
    }

    /// Whether `given` is the key. The time depends on the length of `given` alone, not on where it differs.
    fn is(&self, given: &str) -> bool {
        let key = self.0.as_bytes();
        let differs =
            given.bytes().enumerate().fold(0, |differs, (at, byte)| differs | (byte ^ key[at % key.len()]));
        std::hint::black_box(differs) == 0 && given.len() == key.len()
    }
}

/// Lets requests pass that carry the key, in `authorization: Bearer KEY` or `x-api-key: KEY`.
pub(crate) async fn require_key(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(key) = app.api_key() else { return next.run(request).await };
    if given_key(request.headers()).is_some_and(|given| key.is(given)) {
        return next.run(request).await;
    }
    let message = "send the API key, as `authorization: Bearer KEY` or `x-api-key: KEY`";
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, message).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
    response
}

fn given_key(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Refuses what a page of another site makes a browser send: only reading is safe to allow.
pub(crate) async fn same_site(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let origin = request.headers().get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if let (false, Some(origin), Some(host)) = (reads, origin, host)
        && origin.split_once("://").map(|(_, from)| from) != Some(host)
    {
        let message = "requests from pages of other sites are refused";
        return Problem::new(StatusCode::FORBIDDEN, message).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_opens() {
        let key = ApiKey::new(" secret\n").unwrap();
        assert!(key.is("secret"));
        for wrong in ["", "s", "secre", "secretsecret", "Secret", "secret "] {
            assert!(!key.is(wrong), "{wrong}");
        }
        assert_eq!(ApiKey::new(" \n"), None);
        assert_eq!(format!("{key:?}"), "ApiKey(hidden)");
    }
}
