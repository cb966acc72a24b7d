//! `GET /openapi.json`: the description of the routes, made from their types.

use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::routes::{gorse, items, model, recommend};

/// The description of the service.
#[derive(Debug, OpenApi)]
#[openapi(
    info(
        title = "fastvae",
        description = "Recommendations from a trained model: for known users, for users never seen, and for items."
    ),
    paths(
        recommend::recommend,
        recommend::batch,
        items::find,
        items::item,
        items::similar,
        model::model,
        model::reload,
        model::healthz,
        model::readyz,
        model::metrics,
        gorse::recommend,
        gorse::neighbors,
        gorse::session,
    ),
    tags(
        (name = "recommend", description = "Lists for users"),
        (name = "items", description = "The catalogue"),
        (name = "model", description = "What is served"),
        (name = "health", description = "How the service fares"),
        (name = "gorse", description = "Reading as clients of Gorse do"),
    ),
    modifiers(&Keys),
    security((), ("bearer" = []), ("header" = [])),
)]
pub(crate) struct Description;

struct Keys;

impl Modify for Keys {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let components = description.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        let header = ApiKey::Header(ApiKeyValue::new("x-api-key"));
        components.add_security_scheme("header", SecurityScheme::ApiKey(header));
    }
}

/// The description as JSON.
pub(crate) fn json() -> String {
    Description::openapi().to_json().expect("the description is JSON")
}
