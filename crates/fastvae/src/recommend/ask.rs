//! [`Request`]: a question by outside names, as command lines, services and scripts ask it, and the named list that answers it.

use serde::Serialize;

use crate::baseline::Fallback;
use crate::data::{ItemId, Row};
use crate::error::{Error, Result};
use crate::eval::{Scored, Scorer};
use crate::model::Model;
use crate::recommend::answer::{Answer, Reason};
use crate::recommend::question::{ListOptions, Question};

/// What is asked of [`Model::ask`]. Names that the model does not know are reported and do no harm.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Request {
    /// A user whose history is stored with the model, or of whom the method has learned a vector.
    pub user: Option<String>,
    /// What the user did; added to what is stored of the user. Items in any order; of repeated ones the first counts.
    pub history: Vec<Seen>,
    /// Items that must not be recommended.
    pub exclude: Vec<String>,
    /// The only items that may be recommended, where given.
    pub only: Option<Vec<String>>,
    /// What else the list is made by; its own `exclude` and `only` are added to those here.
    pub list: ListOptions,
}

impl Request {
    /// A list for somebody who did `history`.
    pub fn of<S: Into<Seen>>(history: impl IntoIterator<Item = S>) -> Self {
        Self { history: history.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A list for a user by name.
    pub fn of_user(id: impl Into<String>) -> Self {
        Self { user: Some(id.into()), ..Self::default() }
    }

    /// The same request for another list.
    #[must_use]
    pub fn with(mut self, list: ListOptions) -> Self {
        self.list = list;
        self
    }
}

/// An item of a history by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The item.
    pub item: String,
    /// Its weight, such as how often it was played; 1 where absent.
    pub weight: Option<f32>,
}

impl<S: Into<String>> From<S> for Seen {
    fn from(item: S) -> Self {
        Self { item: item.into(), weight: None }
    }
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Response {
    /// The items, in the order of [`Answer::items`].
    pub items: Vec<Recommendation>,
    /// The items that the request spoke of and the model does not know, each as often as it was given.
    pub unknown: Vec<String>,
    /// Whether only some cells of the index were looked at.
    pub is_approximate: bool,
    /// What stands in for a taste, where nothing is known of who asks.
    pub fallback: Option<Fallback>,
    /// The history that was answered to, ascending.
    #[serde(skip)]
    pub history: Vec<ItemId>,
}

/// A recommended item by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Recommendation {
    /// The item.
    pub item: String,
    /// Its title, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its score, less the popularity penalty.
    pub score: f32,
    /// The strongest reasons, where some were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<Vec<Because>>,
}

/// An item of the history and its part in a recommendation, by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Because {
    /// The item.
    pub item: String,
    /// Its title, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the recommended item's score loses when this item is left out.
    pub contribution: f32,
    /// Its share of all that speaks for the recommendation, from 0 to 1.
    pub share: f32,
}

impl Serialize for Fallback {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Fallback {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Popularity => "popularity",
        }
    }
}

impl Model {
    /// The answer to each request, as [`Model::answer`] gives it.
    ///
    /// An empty history, or one of unknown items alone, is answered with what the method says of nobody where it says
    /// anything, and with the most popular items elsewhere; [`Response::fallback`] tells which.
    ///
    /// # Errors
    /// As [`Model::answer`], and [`Error::UnknownId`] if a user is neither stored nor one of the method's.
    pub fn ask(&self, requests: &[Request]) -> Vec<Result<Response>> {
        let resolved: Vec<Result<(Question, Vec<String>)>> =
            requests.iter().map(|request| self.resolve(request)).collect();
        let questions: Vec<Question> =
            resolved.iter().flatten().map(|(question, _)| question.clone()).collect();
        let mut answers = self.answer(&questions).into_iter();
        let respond = |resolved: Result<(Question, Vec<String>)>| {
            let (question, unknown) = resolved?;
            let answer = answers.next().expect("an answer to each question")?;
            Ok(Response { unknown, ..self.response(answer, &question.history) })
        };
        resolved.into_iter().map(respond).collect()
    }

    /// `answer` by names; it is to somebody who did `history`.
    pub fn response(&self, answer: Answer, history: &[ItemId]) -> Response {
        let mut history = history.to_vec();
        history.sort_unstable();
        history.dedup();
        Response {
            items: self.named(&answer),
            unknown: Vec::new(),
            is_approximate: answer.is_approximate,
            fallback: answer.fallback,
            history,
        }
    }

    /// The items of these names, and the names that are of none, each as often as it was given.
    pub fn known_items<S: AsRef<str>>(&self, ids: impl IntoIterator<Item = S>) -> (Vec<ItemId>, Vec<String>) {
        let (mut items, mut unknown) = (Vec::new(), Vec::new());
        for id in ids {
            match self.item_ids().position(id.as_ref()) {
                Some(item) => items.push(item),
                None => unknown.push(id.as_ref().to_string()),
            }
        }
        (items, unknown)
    }

    /// The items of `answer` by their names, with titles and reasons.
    pub fn named(&self, answer: &Answer) -> Vec<Recommendation> {
        let title = |item: ItemId| self.title(item).map(str::to_string);
        let because = |reason: &Reason| Because {
            item: self.item_ids().name(reason.item).into_owned(),
            title: title(reason.item),
            contribution: reason.contribution,
            share: reason.share,
        };
        let mut reasons = answer.reasons.iter();
        let named = |&Scored { item, score }: &Scored| Recommendation {
            item: self.item_ids().name(item).into_owned(),
            title: title(item),
            score,
            because: reasons.next().map(|reasons| reasons.iter().map(because).collect()),
        };
        answer.items.iter().map(named).collect()
    }

    /// `request` in positions, and the items that it names and the model does not know.
    fn resolve(&self, request: &Request) -> Result<(Question, Vec<String>)> {
        let mut unknown = Vec::new();
        let mut position = |id: &str| {
            let item = self.item_ids().position(id);
            if item.is_none() {
                unknown.push(id.to_string());
            }
            item
        };
        let mut question = Question { list: request.list.clone(), ..Question::default() };
        let mut weights = Vec::new();
        for seen in &request.history {
            if let Some(item) = position(&seen.item) {
                question.history.push(item);
                weights.push(seen.weight);
            }
        }
        question.list.exclude.extend(request.exclude.iter().filter_map(|id| position(id)));
        if let Some(only) = &request.only {
            question.list.only.get_or_insert_default().extend(only.iter().filter_map(|id| position(id)));
        }
        if let Some(id) = &request.user {
            question.user = self.user_ids().and_then(|ids| ids.position(id));
            let row = self.stored(id);
            if row.is_none() && question.user.is_none() {
                return Err(self.unknown_user(id));
            }
            let row = row.unwrap_or(Row { items: &[], weights: None, timestamps: None });
            question.history.extend(row.items);
            match row.weights {
                Some(of) => weights.extend(of.iter().copied().map(Some)),
                None => weights.resize(question.history.len(), None),
            }
        }
        question.weights = weights
            .iter()
            .any(Option::is_some)
            .then(|| weights.iter().map(|weight| weight.unwrap_or(1.0)).collect());
        Ok((question, unknown))
    }

    /// What is stored of user `id`, where something is.
    fn stored(&self, id: &str) -> Option<Row<'_>> {
        let users = self.users()?;
        users.user_ids().position(id).map(|user| users.row(user as usize))
    }

    fn unknown_user(&self, id: &str) -> Error {
        let remedy = match (self.user_ids(), self.users()) {
            (Some(ids), _) => {
                format!("it is not among the {} that {} learned: name one of those", ids.len(), self.name())
            }
            (None, Some(users)) => {
                format!("it is not among the {} stored ones: give a history", users.n_users())
            }
            (None, None) => {
                "this model was saved without its users: train it with --store-users, or give a history"
                    .to_string()
            }
        };
        Error::UnknownId { what: "user", id: id.to_string(), remedy }
    }
}
