//! Reading as clients of Gorse do: `/api/recommend`, `/api/item/.../neighbors`, `/api/session/recommend`.

use axum::Json;
use axum::extract::State;
use fastvae::recommend::{ListOptions, Request};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::extract::{Body, InPath, Parameters};
use crate::problem::{Problem, ProblemBody};
use crate::routes::recommend::{answer, within};
use crate::wire::{Id, Many, Recommendation};

/// An item and its score, as Gorse writes them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Score {
    /// The item.
    id: String,
    /// Its score.
    score: f32,
}

/// What a user did, as Gorse reads it; everything but the item is left aside.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Feedback {
    /// The item.
    item_id: Id,
}

/// Items for a stored user, as Gorse answers
#[utoipa::path(
    get, path = "/api/recommend/{user-id}", tag = "gorse",
    params(("user-id" = String, Path, description = "A user of the training data"), Many),
    responses(
        (status = 200, description = "Identifiers of items, best first", body = Vec<String>),
        (status = 400, description = "The request cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 404, description = "No such user", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn recommend(
    State(app): State<App>,
    InPath(user): InPath,
    Parameters(many): Parameters<Many>,
) -> Result<Json<Vec<String>>, Problem> {
    within("n", many.n, app.limits().n)?;
    let request = Request::of_user(user).with(ListOptions::best(many.n));
    let list = app.compute(move |served| answer(served, &request)).await?;
    Ok(Json(list.recommendations.into_iter().map(|recommendation| recommendation.item).collect()))
}

/// Items like an item, as Gorse answers
#[utoipa::path(
    get, path = "/api/item/{item-id}/neighbors", tag = "gorse",
    params(("item-id" = String, Path, description = "The item"), Many),
    responses(
        (status = 200, description = "The items, nearest first", body = Vec<Score>),
        (status = 400, description = "The request cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 404, description = "No such item", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn neighbors(
    State(app): State<App>,
    InPath(id): InPath,
    Parameters(many): Parameters<Many>,
) -> Result<Json<Vec<Score>>, Problem> {
    within("n", many.n, app.limits().n)?;
    let list = app.compute(move |served| {
        let model = &served.model;
        let near = model.named(&model.similar(model.item(&id)?, many.n)?.into());
        Ok(near.into_iter().map(|near| Score { id: near.item, score: near.score }).collect())
    });
    list.await.map(Json)
}

/// Items for what a visitor did in this session, as Gorse answers
#[utoipa::path(
    post, path = "/api/session/recommend", tag = "gorse", params(Many), request_body = Vec<Feedback>,
    responses(
        (status = 200, description = "The items, best first", body = Vec<Score>),
        (status = 400, description = "The request cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 413, description = "The body is too long", body = ProblemBody),
        (status = 415, description = "The body is not JSON", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn session(
    State(app): State<App>,
    Parameters(many): Parameters<Many>,
    Body(feedback): Body<Vec<Feedback>>,
) -> Result<Json<Vec<Score>>, Problem> {
    within("n", many.n, app.limits().n)?;
    within("the number of items in the session", feedback.len(), app.limits().history)?;
    let history = feedback.into_iter().map(|feedback| feedback.item_id.0);
    let request = Request::of(history).with(ListOptions::best(many.n));
    let list = app.compute(move |served| answer(served, &request)).await?;
    let recommended = list.recommendations.into_iter();
    Ok(Json(recommended.map(|Recommendation { item, score, .. }| Score { id: item, score }).collect()))
}
