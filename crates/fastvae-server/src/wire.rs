//! What requests and answers look like. The schema of `/openapi.json` is made from these types.

#![allow(unused_qualifications, reason = "utoipa's derive qualifies what is in scope")]

use fastvae::recommend::{self, Fallback};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::{OneOfBuilder, Schema, Type};
use utoipa::openapi::{ObjectBuilder, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::limits::Limits;
use crate::problem::Problem;
use crate::served::Vectors;

/// An outside identifier: a string, or an integer that stands for its decimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Id(pub String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Id;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an identifier: a string or an integer")
            }

            fn visit_str<E: de::Error>(self, id: &str) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }

            fn visit_i64<E: de::Error>(self, id: i64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }

            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }

            fn visit_f64<E: de::Error>(self, id: f64) -> Result<Id, E> {
                integer(id, &self).map(|id: i64| Id(id.to_string()))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl PartialSchema for Id {
    fn schema() -> RefOr<Schema> {
        let integer = ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(i64::MIN as f64))
            .maximum(Some(9_007_199_254_740_991_f64));
        OneOfBuilder::new()
            .item(ObjectBuilder::new().schema_type(Type::String))
            .item(integer)
            .description(Some("An outside identifier: a string, or an integer that stands for its digits."))
            .into()
    }
}

impl ToSchema for Id {}

/// JSON has one kind of number: 3.0 is 3, as far as floats count in ones.
fn integer<N: TryFrom<i64>, E: de::Error>(number: f64, expected: &dyn de::Expected) -> Result<N, E> {
    let counts = number.fract() == 0.0 && number.abs() < (1u64 << 53) as f64;
    let integer = counts.then(|| N::try_from(number as i64).ok()).flatten();
    integer.ok_or_else(|| E::invalid_value(de::Unexpected::Float(number), expected))
}

/// Reads a number of things.
fn whole<'de, D: Deserializer<'de>, N: TryFrom<u64>>(from: D) -> Result<N, D::Error> {
    struct Whole;
    impl Visitor<'_> for Whole {
        type Value = u64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number from 0 on")
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<u64, E> {
            integer(number, &self)
        }
    }
    let number = from.deserialize_any(Whole)?;
    N::try_from(number).map_err(|_| de::Error::invalid_value(de::Unexpected::Unsigned(number), &Whole))
}

/// Reads a type from an object alone. Serde would take an array as well, with fields by their places.
macro_rules! from_object {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Object;
                impl<'de> Visitor<'de> for Object {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        // The derived function, which `remote` keeps from being the trait's.
                        $name::deserialize(MapAccessDeserializer::new(map))
                    }
                }
                from.deserialize_map(Object)
            }
        }
    )*};
}

from_object!(RecommendRequest, BatchRequest, Weighted);

/// An item of a history: its identifier, or that with a weight.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "an item is an identifier (a string or an integer), or an object such as {\"item\": 42, \"weight\": 3.0}"
)]
pub enum SeenItem {
    /// The item alone.
    Plain(Id),
    /// The item with its weight.
    Weighted(Weighted),
}

/// An item of a history with its weight.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct Weighted {
    /// The item.
    pub item: Id,
    /// How much it counts, such as how often it was played; 1 where absent.
    #[serde(default)]
    #[schema(exclusive_minimum = 0)]
    pub weight: Option<f64>,
}

impl SeenItem {
    /// The item and its weight for the library.
    ///
    /// # Errors
    /// 400 where the weight is no number to multiply with.
    pub(crate) fn seen(self) -> Result<recommend::Seen, Problem> {
        let Weighted { item: Id(item), weight } = match self {
            Self::Plain(item) => Weighted { item, weight: None },
            Self::Weighted(weighted) => weighted,
        };
        if let Some(weight) = weight
            && !((weight as f32).is_finite() && weight as f32 > 0.0)
        {
            let message = format!("the weight of item `{item}` is {weight}; give a finite number above 0");
            return Err(Problem::bad_request(message));
        }
        Ok(recommend::Seen { item, weight: weight.map(|weight| weight as f32) })
    }
}

/// What to recommend, and to whom.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct RecommendRequest {
    /// What the user did: items in any order, with or without weights, such as `[17, {"item": 42, "weight": 3.0}]`;
    /// of repeated ones the first counts. Unknown ones are reported in the answer and do no harm.
    #[schema(max_items = 1000, default = json!([]))]
    pub history: Vec<SeenItem>,
    /// A user of the training data, where the model was trained with `--store-users` or its method knows its users;
    /// `history` is added to theirs.
    pub user: Option<Id>,
    /// How many items to recommend.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0, maximum = 1000, default = 10)]
    pub n: usize,
    /// Items that must not be recommended.
    #[schema(max_items = 10000)]
    pub exclude: Vec<Id>,
    /// The only items that may be recommended, where given.
    #[schema(max_items = 10000)]
    pub only: Option<Vec<Id>>,
    /// Whether items of the history are left out.
    #[schema(default = true)]
    pub exclude_seen: bool,
    /// Whether each recommendation comes with the items of the history that speak for it, by leaving each one out.
    pub explain: bool,
    /// Subtracted from a score for each unit of ln(1 + popularity).
    #[schema(minimum = 0, maximum = 2)]
    pub popularity_penalty: f32,
    /// From 0, the best scores, to 1, items as unlike each other as possible.
    #[schema(minimum = 0, maximum = 1)]
    pub diversity: f32,
    /// Above 0 the list is drawn from the softmax of score / temperature.
    #[schema(minimum = 0, maximum = 10)]
    pub temperature: f32,
    /// Seed of that draw: the same seed gives the same list.
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 0, maximum = 9007199254740991_i64)]
    pub seed: u64,
    /// Whether the list may come from the index, faster and nearly the same, instead of from every item.
    pub approximate: bool,
}

impl Default for RecommendRequest {
    fn default() -> Self {
        Self {
            history: Vec::new(),
            user: None,
            n: 10,
            exclude: Vec::new(),
            only: None,
            exclude_seen: true,
            explain: false,
            popularity_penalty: 0.0,
            diversity: 0.0,
            temperature: 0.0,
            seed: 0,
            approximate: false,
        }
    }
}

/// An item of the history and its part in a recommendation.
#[derive(Debug, Serialize, ToSchema)]
pub struct Because {
    /// The item.
    pub item: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// What the recommended item's score loses when this item is left out.
    pub contribution: f32,
    /// Its share of all that speaks for the recommendation, from 0 to 1.
    pub share: f32,
}

impl From<recommend::Because> for Because {
    fn from(reason: recommend::Because) -> Self {
        let recommend::Because { item, title, contribution, share, .. } = reason;
        Self { item, title, contribution, share }
    }
}

/// A recommended item.
#[derive(Debug, Serialize, ToSchema)]
pub struct Recommendation {
    /// The item.
    pub item: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// Its score, less the popularity penalty.
    pub score: f32,
    /// The strongest reasons, where `explain` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub because: Option<Vec<Because>>,
}

impl From<recommend::Recommendation> for Recommendation {
    fn from(recommended: recommend::Recommendation) -> Self {
        let recommend::Recommendation { item, title, score, because, .. } = recommended;
        let because = because.map(|reasons| reasons.into_iter().map(Because::from).collect());
        Self { item, title, score, because }
    }
}

/// How a list was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Found {
    /// Every allowed item was scored.
    Exact,
    /// The most promising cells of the index were.
    Approximate,
}

/// A list of recommendations.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecommendResponse {
    /// The items, best first (as drawn or picked, with a temperature or diversity): as many as asked for, or all
    /// that are allowed.
    pub recommendations: Vec<Recommendation>,
    /// Identifiers in the request that the model does not know.
    pub unknown: Vec<String>,
    /// How the list was found.
    pub method: Found,
    /// What stands in for a taste, where nothing of the history is known: `nobody`, what the model says of somebody
    /// unknown, or `popularity`, the items that most users touched.
    #[schema(value_type = Option<String>)]
    pub fallback: Option<Fallback>,
    /// The model that made it.
    pub model: String,
}

/// Several requests at once.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct BatchRequest {
    /// The requests.
    #[schema(max_items = 100)]
    pub requests: Vec<RecommendRequest>,
}

/// The answers to several requests, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub struct BatchResponse {
    /// The answers.
    pub results: Vec<RecommendResponse>,
}

/// An item of the catalogue.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemBody {
    /// The item.
    pub item: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// Users who touched it in the training data.
    pub count: u32,
}

/// Items found by a query.
#[derive(Debug, Serialize, ToSchema)]
pub struct ItemsResponse {
    /// The items, best match first.
    pub items: Vec<ItemBody>,
}

/// An item like another.
#[derive(Debug, Serialize, ToSchema)]
pub struct SimilarItem {
    /// The item.
    pub item: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// How alike they are: the cosine of the two items' vectors, where the method has vectors.
    pub score: f32,
}

/// Items like an item.
#[derive(Debug, Serialize, ToSchema)]
pub struct SimilarResponse {
    /// The item that was asked for.
    pub item: String,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// The items most like it, nearest first.
    pub similar: Vec<SimilarItem>,
    /// The model that says so.
    pub model: String,
}

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Many {
    /// How many items to give.
    #[serde(default = "ten")]
    #[param(minimum = 0, maximum = 1000, default = 10)]
    pub n: usize,
}

/// What to look for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Find {
    /// Words of a title, or the start of an identifier; the most popular items where empty.
    #[serde(default)]
    #[param(max_length = 200)]
    pub query: String,
    /// How many items to give.
    #[serde(default = "ten")]
    #[param(minimum = 0, maximum = 1000, default = 10)]
    pub n: usize,
}

fn ten() -> usize {
    10
}

/// What is served.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelResponse {
    /// The name of this version of the model.
    pub model: String,
    /// Seconds since 1970 at which it was loaded.
    pub loaded_at: u64,
    /// Models that this service has loaded, this one included.
    pub generation: u64,
    /// Items of the catalogue.
    pub n_items: usize,
    /// The method, as `train --model` names it.
    #[schema(example = "fastvae")]
    pub kind: &'static str,
    /// Users whose histories are stored, who can be asked for by id.
    pub stored_users: usize,
    /// Users whom the method has learned, for methods that can answer to these alone, by id.
    pub learned_users: Option<usize>,
    /// Whether items have titles.
    pub titles: bool,
    /// Width of the hidden layer, of a network.
    pub hidden: Option<usize>,
    /// Length of the item vectors, where the method has some.
    pub latent: Option<usize>,
    /// What lists are found with: `f32`, or `int8` to find candidates that are scored again in full precision.
    pub vectors: Vectors,
    /// Learned values, of a network.
    pub n_parameters: Option<usize>,
    /// Version of the model file's layout that this service reads up to.
    pub format: u32,
    /// Version of the library that trained the model.
    pub library_version: String,
    /// How the approximate search was calibrated: target, k, cells, recall, scored_share.
    #[schema(value_type = Option<Object>)]
    pub search: Option<Value>,
    /// The data that the model is for: users, items, interactions and their spread.
    #[schema(value_type = Option<Object>)]
    pub statistics: Option<Value>,
    /// What of these data it has learned from: interactions, of, epochs, refit.
    #[schema(value_type = Option<Object>)]
    pub learned: Option<Value>,
    /// What stands beside the network or in its place, and by which measurements, in a sentence.
    pub chosen: Option<String>,
    /// Metrics, with their standard errors, on the part that the epochs were chosen by.
    #[schema(value_type = Option<Object>)]
    pub validation: Option<Value>,
    /// Metrics, with their standard errors, on held-out interactions.
    #[schema(value_type = Option<Object>)]
    pub evaluation: Option<Value>,
    /// Which held-out interactions those are.
    pub measured_on: Option<String>,
    /// One record for each epoch of the training; none for methods without epochs.
    #[schema(value_type = Vec<Object>)]
    pub epochs: Value,
    /// The settings of the training.
    #[schema(value_type = Object)]
    pub config: Value,
    /// Bounds on requests.
    pub limits: Limits,
}

/// What a reload did.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReloadResponse {
    /// The name of the model that is served now.
    pub model: String,
    /// Models that this service has loaded, this one included.
    pub generation: u64,
}

/// That the service lives.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: &'static str,
}
