//! [`Collector`]: where every reader puts its rows, and [`ReadReport`]: what became of them.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::data::ids::MAX_IDS;
use crate::data::intern::InternError;
use crate::data::read::ReadOptions;
use crate::data::read::cached::with_id;
use crate::data::{IdMap, IdMapBuilder, Interactions, InteractionsBuilder};
use crate::error::{Error, Result};

/// How many rows a file had and why some of them are not in the result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReadReport {
    /// Rows of the file (entries of a matrix), header and blank lines not counted.
    pub rows: u64,
    /// Rows dropped because their rating is below `min_rating`.
    pub below_min_rating: u64,
    /// Rows dropped because their weight is zero or negative.
    pub non_positive_weights: u64,
    /// Rows merged into another of the same user and item.
    pub duplicates: u64,
    /// Rows skipped because their user is not in the given map.
    pub unknown_users: u64,
    /// Rows skipped because their item is not in the given map, of known users.
    pub unknown_items: u64,
}

/// An identifier as a file has it.
#[derive(Clone, Copy)]
pub(crate) enum Id<'a> {
    Integer(i64),
    Text(&'a [u8]),
}

/// What stands beside a (user, item) pair; a non-finite value is an error.
#[derive(Clone, Copy, Default)]
pub(crate) struct Values {
    pub(crate) rating: Option<f64>,
    pub(crate) weight: Option<f64>,
    pub(crate) timestamp: Option<i64>,
}

/// One side's identifiers: collected while reading, or given.
pub(crate) enum Side<'a> {
    New(&'a mut IdMapBuilder),
    Known(&'a IdMap),
}

pub(crate) struct Collector<'a> {
    pub(crate) path: &'a Path,
    pub(crate) options: &'a ReadOptions,
    users: Side<'a>,
    items: Side<'a>,
    rows: InteractionsBuilder,
    report: ReadReport,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(path: &'a Path, options: &'a ReadOptions, users: Side<'a>, items: Side<'a>) -> Self {
        Self { path, options, users, items, rows: InteractionsBuilder::new(), report: ReadReport::default() }
    }

    /// Makes the identifiers `0..n_users` and `0..n_items` exist, as the shape of a matrix says.
    pub(crate) fn declare(&mut self, n_users: u64, n_items: u64) -> Result<()> {
        for (side, n, what) in [(&mut self.users, n_users, "user"), (&mut self.items, n_items, "item")] {
            if n > MAX_IDS as u64 {
                return Err(refused(self.path, None, what, b"", InternError::Full));
            }
            if let Side::New(builder) = side {
                for id in 0..n as i64 {
                    builder.integer(id).map_err(|error| refused(self.path, None, what, b"", error))?;
                }
            }
        }
        Ok(())
    }

    /// Makes the identifiers of two maps exist in their order, those without interactions included; where a side is
    /// known already, neither is declared.
    pub(crate) fn declare_maps(&mut self, users: &IdMap, items: &IdMap) -> Result<()> {
        if let (Side::New(_), Side::New(_)) = (&self.users, &self.items) {
            for (side, map, what) in [(&mut self.users, users, "user"), (&mut self.items, items, "item")] {
                for position in 0..map.len() as u32 {
                    with_id(map, position, |id| resolve(side, self.path, id, what, None))?;
                }
            }
        }
        Ok(())
    }

    /// A user without items on this line.
    pub(crate) fn push_user(&mut self, user: Id<'_>, line: Option<u64>) -> Result<()> {
        resolve(&mut self.users, self.path, user, "user", line).map(|_| ())
    }

    /// An entry of a matrix: its value is a rating where `min_rating` asks for one, else a weight.
    pub(crate) fn push_entry(
        &mut self,
        row: u64,
        column: u64,
        value: Option<f64>,
        line: Option<u64>,
    ) -> Result<()> {
        let values = match self.options.min_rating {
            Some(_) => Values { rating: Some(value.unwrap_or(1.0)), ..Values::default() },
            None => Values { weight: value, ..Values::default() },
        };
        self.push(Id::Integer(row as i64), Id::Integer(column as i64), values, line)
    }

    #[inline]
    pub(crate) fn push(
        &mut self,
        user: Id<'_>,
        item: Id<'_>,
        values: Values,
        line: Option<u64>,
    ) -> Result<()> {
        self.report.rows += 1;
        for (value, what) in [(values.rating, "rating"), (values.weight, "weight")] {
            if let Some(value) = value.filter(|value| !value.is_finite()) {
                return Err(Error::input(
                    self.path,
                    line,
                    format!("the {what} is {value}"),
                    format!("correct or remove the row, or choose another column with --{what}-col"),
                ));
            }
        }
        if values.rating.zip(self.options.min_rating).is_some_and(|(rating, min)| rating < f64::from(min)) {
            self.report.below_min_rating += 1;
            return Ok(());
        }
        if values.weight.is_some_and(|weight| weight <= 0.0) {
            self.report.non_positive_weights += 1;
            return Ok(());
        }
        // Known sides first: a row that is skipped must not add an identifier to the other side.
        let known_item = match &self.items {
            Side::Known(map) => Some(known(map, item)),
            Side::New(_) => None,
        };
        if known_item == Some(None) {
            let user_known = match &self.users {
                Side::Known(map) => known(map, user).is_some(),
                Side::New(_) => true,
            };
            *(if user_known { &mut self.report.unknown_items } else { &mut self.report.unknown_users }) += 1;
            return Ok(());
        }
        let Some(user) = resolve(&mut self.users, self.path, user, "user", line)? else {
            self.report.unknown_users += 1;
            return Ok(());
        };
        let Some(item) = (match known_item {
            Some(position) => position,
            None => resolve(&mut self.items, self.path, item, "item", line)?,
        }) else {
            unreachable!("an unknown item was skipped above")
        };
        let weight = values.weight.map(|weight| weight as f32).filter(|_| !self.options.binarize);
        self.rows.push(user, item, weight, values.timestamp);
        Ok(())
    }

    pub(crate) fn finish(self) -> Collected {
        Collected { rows: self.rows, report: self.report }
    }
}

/// Rows whose identifiers may still move.
pub(crate) struct Collected {
    pub(crate) rows: InteractionsBuilder,
    pub(crate) report: ReadReport,
}

/// One side's final identifiers, and where they moved to.
pub(crate) type Final = (Arc<IdMap>, Option<Vec<u32>>);

impl Collected {
    pub(crate) fn build(mut self, users: &Final, items: &Final) -> Result<(Interactions, ReadReport)> {
        self.rows.renumber(users.1.as_deref(), items.1.as_deref());
        let (rows, duplicates) = self.rows.build(users.0.clone(), items.0.clone())?;
        self.report.duplicates = duplicates as u64;
        Ok((rows, self.report))
    }
}

fn known(map: &IdMap, id: Id<'_>) -> Option<u32> {
    match id {
        Id::Integer(id) => map.position_of_integer(id),
        Id::Text(id) => map.position_of_bytes(id),
    }
}

#[inline]
fn resolve(
    side: &mut Side<'_>,
    path: &Path,
    id: Id<'_>,
    what: &str,
    line: Option<u64>,
) -> Result<Option<u32>> {
    let builder = match side {
        Side::New(builder) => builder,
        Side::Known(map) => return Ok(known(map, id)),
    };
    match id {
        Id::Integer(id) => builder.integer(id),
        Id::Text([]) => {
            return Err(Error::input(
                path,
                line,
                format!("the {what} identifier is empty"),
                format!("fill it in, remove the row, or choose another column with --{what}-col"),
            ));
        }
        Id::Text(id) => builder.intern_bytes(id),
    }
    .map(Some)
    .map_err(|error| refused(path, line, what, if let Id::Text(id) = id { id } else { b"" }, error))
}

#[cold]
fn refused(path: &Path, line: Option<u64>, what: &str, id: &[u8], error: InternError) -> Error {
    match error {
        InternError::NotUtf8 => Error::input(
            path,
            line,
            format!("the {what} identifier `{}` is not UTF-8", id.escape_ascii()),
            "convert the file, for example: iconv -f latin1 -t utf-8",
        ),
        InternError::Full => Error::input(
            path,
            line,
            format!("there are more {what}s than 32-bit positions"),
            format!("check --{what}-col, or keep fewer rows"),
        ),
    }
}
