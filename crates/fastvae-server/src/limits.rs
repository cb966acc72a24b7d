//! [`Limits`]: how much one request, and all of them together, may take.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

/// Bounds on requests. What exceeds them is refused with a message that names the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Items of a history.
    pub history: usize,
    /// Items of `exclude`, and of `only`.
    pub filter: usize,
    /// Items of an answer.
    pub n: usize,
    /// Requests of a batch.
    pub batch: usize,
    /// Requests that compute or wait for it at one time; more are answered with 429.
    pub in_flight: usize,
    /// Connections open at one time; more are closed at once.
    pub connections: usize,
    /// Time to receive a request, and again to compute its answer.
    #[serde(serialize_with = "seconds", rename = "seconds")]
    #[schema(value_type = f64)]
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            history: 1000,
            filter: 10_000,
            n: 1000,
            batch: 100,
            in_flight: 256,
            connections: 20_000,
            time: Duration::from_secs(10),
        }
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}
