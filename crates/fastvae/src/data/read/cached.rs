//! Caches of interactions: used where they lie where that is what was asked for, else row by row like any file.

use std::sync::Arc;

use crate::data::read::collect::{Collector, Id, Values};
use crate::data::read::source::Source;
use crate::data::read::{Format, ReadOptions};
use crate::data::{Cache, IdMap, Interactions};
use crate::error::{Error, Result};

/// The interactions of `source` if it is a cache, else the source itself.
pub(crate) fn open(source: Source, options: &ReadOptions) -> Result<Opened> {
    let format = options.format.unwrap_or_else(|| Format::detect(source.path(), source.sample()));
    if format != Format::Cache {
        return Ok(Opened::Other(source));
    }
    Ok(Opened::Cache(interactions(&source, options)?))
}

/// What [`open`] found.
pub(crate) enum Opened {
    Cache(Interactions),
    Other(Source),
}

/// Puts the pairs of the cache `source` into `rows`, by their names: for maps that are not the cache's own.
pub(crate) fn read(source: &Source, rows: &mut Collector<'_>) -> Result<()> {
    push(&interactions(source, rows.options)?, rows)
}

/// As [`read`], for a cache that is open.
pub(crate) fn push(data: &Interactions, rows: &mut Collector<'_>) -> Result<()> {
    rows.declare_maps(data.user_ids(), data.item_ids())?;
    for user in 0..data.n_users() {
        let row = data.row(user);
        with_id(data.user_ids(), user as u32, |user| {
            for (at, &item) in row.items.iter().enumerate() {
                let values = Values {
                    weight: row.weights.map(|weights| f64::from(weights[at])),
                    timestamp: row.timestamps.map(|timestamps| timestamps[at]),
                    rating: None,
                };
                with_id(data.item_ids(), item, |item| rows.push(user, item, values, None))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether `data` can stand for itself under these maps; a side without one keeps its own.
pub(crate) fn is_under(data: &Interactions, users: Option<&Arc<IdMap>>, items: &Arc<IdMap>) -> bool {
    users.is_none_or(|users| *data.user_ids() == *users) && *data.item_ids() == *items
}

fn interactions(source: &Source, options: &ReadOptions) -> Result<Interactions> {
    let path = source.path();
    if source.is_compressed() {
        return Err(Error::input(
            path,
            None,
            "a compressed cache cannot be mapped",
            "decompress it first: zstd -d, gunzip",
        ));
    }
    let data = Cache::open(path)?.interactions;
    Ok(if options.binarize { data.binarized() } else { data })
}

/// Calls `work` with the identifier at `position`.
pub(crate) fn with_id<T>(ids: &IdMap, position: u32, work: impl FnOnce(Id<'_>) -> T) -> T {
    if let Some(integers) = ids.integers() {
        work(Id::Integer(integers[position as usize]))
    } else if ids.is_range() {
        work(Id::Integer(i64::from(position)))
    } else {
        work(Id::Text(ids.name(position).as_bytes()))
    }
}
