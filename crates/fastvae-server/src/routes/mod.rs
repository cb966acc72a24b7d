//! The routes, one file for each kind.

pub(crate) mod gorse;
pub(crate) mod items;
pub(crate) mod model;
pub(crate) mod page;
pub(crate) mod recommend;
