//! LightGCN's adjacency lists: `user item item ...`, one user per line.

use crate::data::read::collect::{Collector, Id, Values};
use crate::data::read::lines::Lines;
use crate::data::read::source::Source;
use crate::error::{Error, Result};

/// Reads `source`; a user without items stays a user.
pub(crate) fn read(source: Source, rows: &mut Collector<'_>) -> Result<()> {
    if rows.options.min_rating.is_some() {
        return Err(Error::input(
            rows.path,
            None,
            "adjacency lists have no ratings to compare",
            "leave out --min-rating, or give the right --format",
        ));
    }
    let mut lines = Lines::new(source)?;
    loop {
        let number = lines.number() + 1;
        let Some(line) = lines.next()? else { return Ok(()) };
        let mut words = line
            .split(|byte| matches!(byte, b' ' | b'\t'))
            .map(<[u8]>::trim_ascii)
            .filter(|word| !word.is_empty());
        let Some(user) = words.next() else { continue };
        rows.push_user(Id::Text(user), Some(number))?;
        for item in words {
            rows.push(Id::Text(user), Id::Text(item), Values::default(), Some(number))?;
        }
    }
}
