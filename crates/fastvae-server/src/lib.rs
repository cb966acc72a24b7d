//! Recommendations over HTTP.
//!
//! [`App`] holds a model and the threads that compute with it, [`router`] is all routes as a function that needs no
//! socket, [`serve`] listens. A request takes the way `listen` -> `router` -> `routes` -> `workers` -> library; what
//! it is refused for is a [`Problem`].

mod app;
mod auth;
mod extract;
mod limits;
mod listen;
mod observe;
mod openapi;
mod problem;
mod router;
mod routes;
mod served;
mod wire;
mod workers;

pub use app::{App, Options, StartError};
pub use auth::ApiKey;
pub use limits::Limits;
pub use listen::{Listen, accept, serve};
pub use observe::Observer;
pub use problem::Problem;
pub use router::router;
pub use served::{Served, Stamp, Store, Vectors};
pub use workers::{Queue, TOGETHER, Workers};
