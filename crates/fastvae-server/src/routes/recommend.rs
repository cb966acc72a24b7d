//! `POST /v1/recommend` and `POST /v1/recommend/batch`.

use axum::Json;
use axum::extract::State;
use fastvae::data::ItemId;
use fastvae::model::History;
use fastvae::recommend::{Asked, Knobs, Method, Reason, Request, Scored};

use crate::app::App;
use crate::extract::Body;
use crate::limits::Limits;
use crate::problem::{Problem, ProblemBody};
use crate::served::Served;
use crate::wire::{
    BatchRequest, BatchResponse, Because, Found, Id, RecommendRequest, RecommendResponse, Recommendation,
};
use crate::workers::TOGETHER;

/// Reasons given for a recommendation, at most.
const REASONS: usize = 3;

/// What to show a user: from a history in the request, or a stored one
#[utoipa::path(
    post, path = "/v1/recommend", tag = "recommend", request_body = RecommendRequest,
    responses(
        (status = 200, description = "The list", body = RecommendResponse),
        (status = 400, description = "The request cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 404, description = "No such user", body = ProblemBody),
        (status = 413, description = "The body is too long", body = ProblemBody),
        (status = 415, description = "The body is not JSON", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn recommend(
    State(app): State<App>,
    Body(request): Body<RecommendRequest>,
) -> Result<Json<RecommendResponse>, Problem> {
    request.check(app.limits())?;
    match request.scans() {
        true => app.compute_together(request, answers).await.map(Json),
        false => app.compute(move |served| answer(served, &request)).await.map(Json),
    }
}

/// Several lists at once
#[utoipa::path(
    post, path = "/v1/recommend/batch", tag = "recommend", request_body = BatchRequest,
    responses(
        (status = 200, description = "The lists, in the order of the requests", body = BatchResponse),
        (status = 400, description = "A request cannot be understood or asks for too much", body = ProblemBody),
        (status = 401, description = "The API key is missing or wrong", body = ProblemBody),
        (status = 404, description = "No such user", body = ProblemBody),
        (status = 413, description = "The body is too long", body = ProblemBody),
        (status = 415, description = "The body is not JSON", body = ProblemBody),
        (status = 429, description = "Too many requests wait", body = ProblemBody),
    ),
)]
pub(crate) async fn batch(
    State(app): State<App>,
    Body(batch): Body<BatchRequest>,
) -> Result<Json<BatchResponse>, Problem> {
    within("requests", batch.requests.len(), app.limits().batch)?;
    for request in &batch.requests {
        request.check(app.limits())?;
    }
    let results = app.compute(move |served| {
        use rayon::prelude::*;
        let parts = batch.requests.par_chunks(TOGETHER).flat_map_iter(|part| answers(served, part));
        parts.collect::<Result<Vec<_>, _>>()
    });
    Ok(Json(BatchResponse { results: results.await? }))
}

/// A refusal where `value` of `what` is more than `most`.
pub(crate) fn within(what: &str, value: usize, most: usize) -> Result<(), Problem> {
    if value <= most {
        return Ok(());
    }
    Err(Problem::bad_request(format!("`{what}` is {value}; give at most {most}")))
}

impl RecommendRequest {
    /// Whether it stays within `limits`; whatever else it may ask for is checked with the model.
    fn check(&self, limits: &Limits) -> Result<(), Problem> {
        within("n", self.n, limits.n)?;
        within("the number of items in history", self.history.len(), limits.history)?;
        within("the number of items in exclude", self.exclude.len(), limits.filter)?;
        within("the number of items in only", self.only.as_ref().map_or(0, Vec::len), limits.filter)?;
        Ok(self.knobs().validate()?)
    }

    /// Whether every item is read for it, and little else is done.
    fn scans(&self) -> bool {
        !self.approximate && !self.explain && self.only.is_none()
    }

    fn knobs(&self) -> Knobs {
        Knobs {
            popularity_penalty: self.popularity_penalty,
            diversity: self.diversity,
            temperature: self.temperature,
            seed: self.seed,
        }
    }
}

/// The history of the stored user `id`.
pub(crate) fn stored_history<'a>(served: &'a Served, id: &str) -> Result<&'a [ItemId], Problem> {
    let users = served.model.users().ok_or_else(|| {
        Problem::not_found(format!(
            "user `{id}` is not known: this model was saved without its users; train it with --store-users, or send a \
             history"
        ))
    })?;
    let user = users.user_ids().position(id).ok_or_else(|| {
        Problem::not_found(format!(
            "user `{id}` is not among the {} stored ones; send a history",
            users.n_users()
        ))
    })?;
    Ok(users.row(user as usize).items)
}

/// The answer to one request.
pub(crate) fn answer(served: &Served, request: &RecommendRequest) -> Result<RecommendResponse, Problem> {
    answers(served, std::slice::from_ref(request)).pop().expect("one answer to one request")
}

/// The answer to each request; those that read every item share one pass over them.
fn answers(served: &Served, requests: &[RecommendRequest]) -> Vec<Result<RecommendResponse, Problem>> {
    let known: Vec<Result<Known<'_>, Problem>> =
        requests.iter().map(|request| Known::of(served, request)).collect();
    let asked: Vec<Asked<'_>> = known.iter().flatten().map(|known| known.asked(served)).collect();
    let mut lists = served.model.recommend_together(&asked).into_iter();
    let answer = |known: Result<Known<'_>, Problem>| {
        let known = known?;
        let (list, method) = lists.next().expect("a list for each that was asked for")?;
        known.answer(served, &list, method)
    };
    known.into_iter().map(answer).collect()
}

/// A request in terms of the model's items.
struct Known<'a> {
    request: &'a RecommendRequest,
    history: Vec<ItemId>,
    exclude: Vec<ItemId>,
    only: Option<Vec<ItemId>>,
    unknown: Vec<String>,
}

impl<'a> Known<'a> {
    fn of(served: &Served, request: &'a RecommendRequest) -> Result<Self, Problem> {
        let mut unknown = Vec::new();
        let mut known = |ids: &[Id]| {
            let known = served.model.known_items(ids);
            unknown.extend(known.unknown);
            known.items
        };
        let mut history = known(&request.history);
        let exclude = known(&request.exclude);
        let only = request.only.as_deref().map(&mut known);
        if let Some(user) = &request.user {
            history.extend(stored_history(served, user.as_ref())?);
            history.sort_unstable();
            history.dedup();
        }
        Ok(Self { request, history, exclude, only, unknown })
    }

    fn asked<'b>(&'b self, served: &'b Served) -> Asked<'b> {
        Asked {
            request: Request {
                history: self.as_history(),
                user: None,
                n: self.request.n,
                exclude: &self.exclude,
                only: self.only.as_deref(),
                keep_seen: !self.request.exclude_seen,
            },
            knobs: self.request.knobs(),
            search: served.search.as_ref().filter(|_| self.request.approximate),
        }
    }

    fn as_history(&self) -> History<'_> {
        History { items: &self.history, weights: None }
    }

    fn answer(self, served: &Served, list: &[Scored], method: Method) -> Result<RecommendResponse, Problem> {
        let mut recommendations: Vec<Recommendation> =
            list.iter().map(|&scored| recommendation(served, scored)).collect();
        if self.request.explain {
            let items: Vec<ItemId> = list.iter().map(|scored| scored.item).collect();
            let reasons = served.model.explain(self.as_history(), &items, REASONS)?;
            for (recommendation, reasons) in recommendations.iter_mut().zip(&reasons) {
                recommendation.because = Some(reasons.iter().map(|reason| because(served, reason)).collect());
            }
        }
        Ok(RecommendResponse {
            recommendations,
            unknown: self.unknown,
            method: Found::from(method),
            model: served.name.clone(),
        })
    }
}

fn recommendation(served: &Served, Scored { item, score }: Scored) -> Recommendation {
    let model = &served.model;
    Recommendation {
        item: model.item_ids().name(item).into_owned(),
        title: model.title(item).map(str::to_string),
        score,
        because: None,
    }
}

fn because(served: &Served, reason: &Reason) -> Because {
    let model = &served.model;
    Because {
        item: model.item_ids().name(reason.item).into_owned(),
        title: model.title(reason.item).map(str::to_string),
        share: reason.share,
    }
}
