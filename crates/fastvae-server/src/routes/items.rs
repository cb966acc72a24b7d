//! `GET /v1/items`, `GET /v1/items/{id}` and `GET /v1/items/{id}/similar`.

use axum::Json;
use axum::extract::State;
use fastvae::data::ItemId;
use fastvae::recommend::Recommendation;

use crate::app::App;
use crate::extract::{InPath, Parameters};
use crate::problem::{Problem, ProblemBody};
use crate::routes::recommend::within;
use crate::served::Served;
use crate::wire::{Find, ItemBody, ItemsResponse, Many, SimilarItem, SimilarResponse};

/// Characters of a query, at most: titles are not longer.
const LONGEST_QUERY: usize = 200;

/// Finds items by title or identifier
#[utoipa::path(
    get, path = "/v1/items", tag = "items", params(Find),
    responses(
        (status = 200, description = "The items, best match first", body = ItemsResponse),
        (status = 400, description = "The query cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn find(
    State(app): State<App>,
    Parameters(find): Parameters<Find>,
) -> Result<Json<ItemsResponse>, Problem> {
    within("n", find.n, app.limits().n)?;
    within("the number of characters in query", find.query.chars().count(), LONGEST_QUERY)?;
    let items = app.compute(move |served| {
        let found = served.finder.search(&served.model, &find.query, find.n);
        Ok(found.into_iter().map(|item| body(served, item)).collect())
    });
    Ok(Json(ItemsResponse { items: items.await? }))
}

/// One item
#[utoipa::path(
    get, path = "/v1/items/{id}", tag = "items", params(("id" = String, Path, description = "The item")),
    responses(
        (status = 200, description = "The item", body = ItemBody),
        (status = 400, description = "The address cannot be understood", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 404, description = "No such item", body = ProblemBody),
    ),
)]
pub(crate) async fn item(State(app): State<App>, InPath(id): InPath) -> Result<Json<ItemBody>, Problem> {
    let served = app.served();
    Ok(Json(body(&served, served.model.item(&id)?)))
}

/// Items like an item
#[utoipa::path(
    get, path = "/v1/items/{id}/similar", tag = "items",
    params(("id" = String, Path, description = "The item"), Many),
    responses(
        (status = 200, description = "The items, nearest first", body = SimilarResponse),
        (status = 400, description = "The request cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 404, description = "No such item", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn similar(
    State(app): State<App>,
    InPath(id): InPath,
    Parameters(many): Parameters<Many>,
) -> Result<Json<SimilarResponse>, Problem> {
    within("n", many.n, app.limits().n)?;
    let answer = app.compute(move |served| {
        let model = &served.model;
        let item = model.item(&id)?;
        let near = model.named(&model.similar(item, many.n)?.into()).into_iter();
        Ok(SimilarResponse {
            similar: near
                .map(|Recommendation { item, title, score, .. }| SimilarItem { item, title, score })
                .collect(),
            title: model.title(item).map(str::to_string),
            model: served.name.clone(),
            item: id,
        })
    });
    answer.await.map(Json)
}

fn body(served: &Served, item: ItemId) -> ItemBody {
    ItemBody {
        item: served.model.item_ids().name(item).into_owned(),
        title: served.model.title(item).map(str::to_string),
        count: served.model.item_counts()[item as usize],
    }
}
