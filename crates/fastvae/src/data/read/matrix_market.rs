//! MatrixMarket coordinate files: `row column [value]`, counted from 1.
//!
//! Identifiers are the row and column numbers counted from 0, as in every other matrix format.

use crate::data::read::collect::Collector;
use crate::data::read::lines::Lines;
use crate::data::read::source::Source;
use crate::data::read::value;
use crate::error::{Error, Result};

/// Reads `source`, users x items.
pub(crate) fn read(source: Source, rows: &mut Collector<'_>) -> Result<()> {
    let path = rows.path;
    let broken = |line: u64, problem: String| {
        Error::input(path, line, problem, "write it again as a MatrixMarket coordinate matrix (general)")
    };
    let mut lines = Lines::new(source)?;
    let header =
        lines.next()?.map(|line| String::from_utf8_lossy(line).to_ascii_lowercase()).unwrap_or_default();
    let words: Vec<&str> = header.split_ascii_whitespace().collect();
    let has_values = match words[..] {
        ["%%matrixmarket", "matrix", "coordinate", "pattern", "general"] => false,
        ["%%matrixmarket", "matrix", "coordinate", "real" | "integer", "general"] => true,
        _ => {
            let shown: String = header.chars().take(80).collect();
            return Err(broken(1, format!("`{shown}` is not the header of a general coordinate matrix")));
        }
    };
    let mut shape = None;
    let mut seen = 0u64;
    loop {
        let number = lines.number() + 1;
        let Some(line) = lines.next()? else { break };
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'%' {
            continue;
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut integer = || -> Option<u64> { std::str::from_utf8(words.next()?).ok()?.parse().ok() };
        let shown = || String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
        let Some((n_rows, n_columns, n_entries)) = shape else {
            let sizes = integer().zip(integer()).zip(integer());
            let ((n_rows, n_columns), n_entries) = sizes
                .ok_or_else(|| broken(number, format!("`{}` is not `rows columns entries`", shown())))?;
            rows.declare(n_rows, n_columns)?;
            shape = Some((n_rows, n_columns, n_entries));
            continue;
        };
        let (row, column) = integer()
            .zip(integer())
            .filter(|&(row, column)| (1..=n_rows).contains(&row) && (1..=n_columns).contains(&column))
            .ok_or_else(|| {
                broken(number, format!("`{}` is not an entry of {n_rows} x {n_columns}", shown()))
            })?;
        let value = if has_values {
            let value = words.next().and_then(value::number);
            Some(value.ok_or_else(|| broken(number, format!("`{}` has no value", shown())))?)
        } else {
            None
        };
        rows.push_entry(row - 1, column - 1, value, Some(number))?;
        seen += 1;
        if seen > n_entries {
            return Err(broken(number, format!("there are more than the {n_entries} entries announced")));
        }
    }
    match shape {
        Some((.., n_entries)) if seen < n_entries => {
            Err(broken(lines.number(), format!("the file ends after {seen} of {n_entries} entries")))
        }
        Some(_) => Ok(()),
        None => Err(broken(lines.number(), "the file has no line of sizes".to_string())),
    }
}
