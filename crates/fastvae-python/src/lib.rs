//! The extension module behind the Python package `fastvae-cf`: arrays in, arrays out.
//!
//! Everything a person sees (defaults, frames, names, progress bars) is Python, in `python/fastvae_cf`; here is what
//! needs the library. Long calls release the interpreter and run on threads of their own ([`threads`]).

mod errors;
mod evaluation;
mod ids;
mod interactions;
mod model;
mod proposals;
mod threads;
mod training;
mod vectors;

use pyo3::prelude::*;

/// The library behind the package; use `fastvae_cf`, which is documented.
#[pymodule]
mod _fastvae {
    use super::*;
    #[pymodule_export]
    use crate::evaluation::{evaluate, evaluate_users, paired_difference};
    #[pymodule_export]
    use crate::ids::Ids;
    #[pymodule_export]
    use crate::interactions::Interactions;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::proposals::Proposal;
    #[pymodule_export]
    use crate::training::{default_settings, fit};
    #[pymodule_export]
    use crate::vectors::Vectors;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
