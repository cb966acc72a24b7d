//! The page at `/` and what it loads, all of it in the binary; and `/docs`.
//!
//! Four files, written by hand: nothing builds them, and nothing outside is loaded.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

struct Asset {
    kind: &'static str,
    text: &'static str,
    tag: &'static str,
}

/// The version of the service stands for its files.
const TAG: &str = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");

const INDEX: Asset =
    Asset { kind: "text/html; charset=utf-8", text: include_str!("../../page/index.html"), tag: TAG };
const DOCS: Asset =
    Asset { kind: "text/html; charset=utf-8", text: include_str!("../../page/docs.html"), tag: TAG };
const STYLE: Asset =
    Asset { kind: "text/css; charset=utf-8", text: include_str!("../../page/style.css"), tag: TAG };
const SCRIPT: Asset =
    Asset { kind: "text/javascript; charset=utf-8", text: include_str!("../../page/app.js"), tag: TAG };
const DOCS_SCRIPT: Asset =
    Asset { kind: "text/javascript; charset=utf-8", text: include_str!("../../page/docs.js"), tag: TAG };
const ICON: Asset = Asset { kind: "image/svg+xml", text: include_str!("../../page/icon.svg"), tag: TAG };

pub(crate) async fn index(headers: HeaderMap) -> Response {
    INDEX.answer(&headers)
}

pub(crate) async fn docs(headers: HeaderMap) -> Response {
    DOCS.answer(&headers)
}

pub(crate) async fn style(headers: HeaderMap) -> Response {
    STYLE.answer(&headers)
}

pub(crate) async fn script(headers: HeaderMap) -> Response {
    SCRIPT.answer(&headers)
}

pub(crate) async fn docs_script(headers: HeaderMap) -> Response {
    DOCS_SCRIPT.answer(&headers)
}

pub(crate) async fn icon(headers: HeaderMap) -> Response {
    ICON.answer(&headers)
}

impl Asset {
    fn answer(&self, headers: &HeaderMap) -> Response {
        let about = [(header::ETAG, self.tag), (header::CACHE_CONTROL, "no-cache")];
        // Versions under development share a number, so only releases answer from the browser's cache.
        let known = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag == self.tag);
        if known && !cfg!(debug_assertions) {
            return (StatusCode::NOT_MODIFIED, about).into_response();
        }
        (about, [(header::CONTENT_TYPE, self.kind)], self.text).into_response()
    }
}
