//! What should a user see next? Lists from a trained model: for one history, for many, and around one item; exact, or over the
//! inverted multi-index; with reasons.
//!
//! Whoever knows positions asks a [`Question`] of [`Model::answer`](crate::Model::answer), whoever knows names a [`Request`] of
//! [`Model::ask`](crate::Model::ask), which puts it into positions, has it answered and names the list.

mod answer;
mod ask;
pub(crate) mod find;
mod knobs;
mod many;
mod question;
mod search;
pub(crate) mod writer;

pub use answer::{Answer, Reason};
pub use ask::{Because, Recommendation, Request, Response, Seen};
pub use knobs::Knobs;
pub use question::{ListOptions, Question};
pub use search::SearchOptions;

pub use crate::baseline::Fallback;
pub use crate::eval::Scored;
