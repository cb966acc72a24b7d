//! `POST /v1/recommend` and `POST /v1/recommend/batch`.

use axum::Json;
use axum::extract::State;
use fastvae::recommend::{Knobs, ListOptions, Request, Response, Seen};

use crate::app::App;
use crate::extract::Body;
use crate::limits::Limits;
use crate::problem::{Problem, ProblemBody};
use crate::served::Served;
use crate::wire::{
    BatchRequest, BatchResponse, Found, Id, RecommendRequest, RecommendResponse, Recommendation, SeenItem,
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
    let request = request.question(app.limits())?;
    match scans(&request) {
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
    let requests: Result<Vec<_>, _> =
        batch.requests.into_iter().map(|request| request.question(app.limits())).collect();
    let requests = requests?;
    let results = app.compute(move |served| {
        use rayon::prelude::*;
        let parts = requests.par_chunks(TOGETHER).flat_map_iter(|part| answers(served, part));
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
    /// The question to the library, if it stays within `limits`; whatever else it may ask for is checked with the model.
    fn question(self, limits: &Limits) -> Result<Request, Problem> {
        within("n", self.n, limits.n)?;
        within("the number of items in history", self.history.len(), limits.history)?;
        within("the number of items in exclude", self.exclude.len(), limits.filter)?;
        within("the number of items in only", self.only.as_ref().map_or(0, Vec::len), limits.filter)?;
        let mut list = ListOptions::best(self.n);
        list.keep_seen = !self.exclude_seen;
        list.approximate = self.approximate;
        list.reasons = if self.explain { REASONS } else { 0 };
        list.knobs = Knobs {
            popularity_penalty: self.popularity_penalty,
            diversity: self.diversity,
            temperature: self.temperature,
            seed: self.seed,
        };
        let names = |ids: Vec<Id>| ids.into_iter().map(|Id(id)| id).collect();
        let history: Result<Vec<Seen>, _> = self.history.into_iter().map(SeenItem::seen).collect();
        let mut request = Request::of(history?).with(list);
        request.user = self.user.map(|Id(user)| user);
        request.exclude = names(self.exclude);
        request.only = self.only.map(names);
        Ok(request)
    }
}

/// Whether every item is read for it, and little else is done.
fn scans(request: &Request) -> bool {
    !request.list.approximate && request.list.reasons == 0 && request.only.is_none()
}

/// The answer to one request.
pub(crate) fn answer(served: &Served, request: &Request) -> Result<RecommendResponse, Problem> {
    answers(served, std::slice::from_ref(request)).pop().expect("one answer to one request")
}

/// The answer to each request; those that read every item share one pass over them.
fn answers(served: &Served, requests: &[Request]) -> Vec<Result<RecommendResponse, Problem>> {
    let respond = |response: fastvae::Result<Response>| {
        let response = response?;
        // JSON has no other numbers.
        if !response.items.iter().all(is_finite) {
            return Err(Problem::bad_request(
                "the scores are not finite; give smaller weights in the history",
            ));
        }
        Ok(RecommendResponse {
            recommendations: response.items.into_iter().map(Recommendation::from).collect(),
            unknown: response.unknown,
            method: if response.is_approximate { Found::Approximate } else { Found::Exact },
            fallback: response.fallback,
            model: served.name.clone(),
        })
    };
    served.model.ask(requests).into_iter().map(respond).collect()
}

fn is_finite(recommended: &fastvae::recommend::Recommendation) -> bool {
    let reasons = recommended.because.iter().flatten();
    recommended.score.is_finite() && reasons.into_iter().all(|reason| reason.contribution.is_finite())
}
