//! The page at `/` and what it loads, all of it in the binary; and `/docs`.
//!
//! Files written by hand: nothing builds them, and nothing outside is loaded.

use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of `page/`.
macro_rules! asset {
    ($kind:expr, $name:literal) => {
        Asset { name: $name, kind: $kind, text: include_str!(concat!("../../page/", $name)) }
    };
}

const INDEX: Asset = asset!(HTML, "index.html");
const DOCS: Asset = asset!(HTML, "docs.html");
const ICON: Asset = asset!("image/svg+xml", "icon.svg");
const ASSETS: [Asset; 11] = [
    ICON,
    asset!("text/css; charset=utf-8", "style.css"),
    asset!(SCRIPT, "app.js"),
    asset!(SCRIPT, "docs.js"),
    asset!(SCRIPT, "elements.js"),
    asset!(SCRIPT, "knobs.js"),
    asset!(SCRIPT, "list.js"),
    asset!(SCRIPT, "model.js"),
    asset!(SCRIPT, "search.js"),
    asset!(SCRIPT, "service.js"),
    asset!(SCRIPT, "state.js"),
];

pub(crate) async fn index(headers: HeaderMap) -> Response {
    INDEX.answer(&headers)
}

pub(crate) async fn docs(headers: HeaderMap) -> Response {
    DOCS.answer(&headers)
}

pub(crate) async fn icon(headers: HeaderMap) -> Response {
    ICON.answer(&headers)
}

/// A file that the pages load.
pub(crate) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => asset.answer(&headers),
        None => Problem::not_found("there is no such file; the page is at /").into_response(),
    }
}

impl Asset {
    fn answer(&self, headers: &HeaderMap) -> Response {
        let tag = self.tag();
        let known =
            headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let about = [(header::ETAG, tag.as_str()), (header::CACHE_CONTROL, "no-cache")];
        if known {
            return (StatusCode::NOT_MODIFIED, about).into_response();
        }
        (about, [(header::CONTENT_TYPE, self.kind)], self.text).into_response()
    }

    /// What changes with the text: Fowler, Noll and Vo's hash of it.
    fn tag(&self) -> String {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("\"{:016x}\"", self.text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_page_or_script_names_is_served() {
        let pages = [INDEX.text, DOCS.text];
        for text in pages.into_iter().chain(ASSETS.iter().map(|asset| asset.text)) {
            let named = text.split('"').filter_map(|part| {
                let module = part.strip_prefix("./").filter(|name| name.ends_with(".js"));
                part.strip_prefix("/assets/").or(module)
            });
            for name in named {
                assert!(ASSETS.iter().any(|asset| asset.name == name), "{name}");
            }
        }
    }
}
