//! Text with one interaction per line: CSV, TSV, MovieLens and RecBole.

use crate::data::ids::canonical_integer;
use crate::data::read::collect::{Collector, Id, Values};
use crate::data::read::columns::{Columns, looks_like_header};
use crate::data::read::fields::{Fields, Separator, detect_delimiter};
use crate::data::read::format::complete_lines;
use crate::data::read::lines::Lines;
use crate::data::read::source::Source;
use crate::data::read::{Format, value};
use crate::error::{Error, Result};

/// Records looked at to tell a header and what the columns hold.
const LOOKED_AT: usize = 20;

/// Reads `source` as `format`, one of the four above.
pub(crate) fn read(source: Source, format: Format, rows: &mut Collector<'_>) -> Result<()> {
    let separator = match (format, rows.options.delimiter) {
        (Format::MovieLens, None) => Separator::TwoColons,
        (Format::Tsv | Format::RecBole, None) => Separator::Byte(b'\t'),
        (_, Some(delimiter)) => Separator::of_delimiter(delimiter),
        (_, None) => {
            let lines: Vec<&[u8]> = complete_lines(source.sample()).take(LOOKED_AT).collect();
            // One column is reported as such further down.
            detect_delimiter(&lines).unwrap_or(Separator::Byte(b','))
        }
    };
    let quoting = matches!(format, Format::Csv | Format::Tsv);
    let layout = Layout::detect(&source, format, separator, quoting, rows)?;
    let mut lines = Lines::new(source)?;
    let mut fields = Fields::default();
    if layout.header {
        fields.read(&mut lines, separator, quoting)?;
    }
    if let (Some(byte), true) = (layout.plain_separator(), layout.only_pairs()) {
        pairs(&mut lines, byte, &layout, quoting, rows)?;
    } else {
        while fields.read(&mut lines, separator, quoting)? {
            record(&fields, &layout, lines.number(), rows)?;
        }
    }
    Ok(())
}

/// What the fields of a file are.
struct Layout {
    header: bool,
    n_fields: usize,
    columns: Columns,
    separator: Separator,
}

impl Layout {
    fn detect(
        source: &Source,
        format: Format,
        separator: Separator,
        quoting: bool,
        rows: &Collector<'_>,
    ) -> Result<Self> {
        let (path, options) = (rows.path, rows.options);
        let mut records = first_records(source, separator, quoting)?;
        let Some(first) = records.first_mut() else {
            return Err(Error::input(path, None, "the file is empty", "give a file with interactions"));
        };
        let n_fields = first.len();
        if n_fields < 2 {
            let shown: String =
                first.first().map(|field| field.chars().take(60).collect()).unwrap_or_default();
            return Err(Error::input(
                path,
                1,
                format!("the line `{shown}` has one column"),
                "give the --delimiter between users and items, or the --format",
            ));
        }
        let header = match (options.has_header, format) {
            (Some(header), _) => header,
            (None, Format::RecBole) => true,
            (None, _) => looks_like_header(&records[0], records.get(1), options),
        };
        let columns = if header {
            let mut names = records.swap_remove(0);
            if format == Format::RecBole {
                for name in &mut names {
                    if let Some((plain, _)) = name.split_once(':') {
                        *name = plain.to_string();
                    }
                }
            }
            Columns::in_header(path, &names, options)?
        } else {
            Columns::by_number(path, &records, options)?
        };
        Ok(Self { header, n_fields, columns, separator })
    }

    fn plain_separator(&self) -> Option<u8> {
        match self.separator {
            Separator::Byte(byte) => Some(byte),
            _ => None,
        }
    }

    /// Whether there is nothing but a user and an item.
    fn only_pairs(&self) -> bool {
        let columns = &self.columns;
        self.n_fields == 2 && columns.user == 0 && columns.rating.is_none() && columns.weight.is_none()
    }
}

fn first_records(source: &Source, separator: Separator, quoting: bool) -> Result<Vec<Vec<String>>> {
    let mut lines = Lines::new(source.preview())?;
    let mut fields = Fields::default();
    let mut records = Vec::new();
    while records.len() < LOOKED_AT && fields.read(&mut lines, separator, quoting)? {
        records.push(fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect());
    }
    Ok(records)
}

/// The fast path: lines of two integers skip the cutting into fields; any other line takes the long way.
fn pairs(
    lines: &mut Lines,
    separator: u8,
    layout: &Layout,
    quoting: bool,
    rows: &mut Collector<'_>,
) -> Result<()> {
    let mut fields = Fields::default();
    loop {
        let Some(line) = lines.next()? else { return Ok(()) };
        if let Some((user, item)) = two_integers(line, separator) {
            rows.push(Id::Integer(user), Id::Integer(item), Values::default(), Some(lines.number()))?;
        } else if !line.trim_ascii().is_empty() {
            let line = line.to_vec();
            fields.resume(&line, lines, layout.separator, quoting)?;
            record(&fields, layout, lines.number(), rows)?;
        }
    }
}

/// `user SEPARATOR item` where both are canonical and below 10^18.
#[inline]
fn two_integers(line: &[u8], separator: u8) -> Option<(i64, i64)> {
    let (user, rest) = leading_integer(line)?;
    if *rest.first()? != separator {
        return None;
    }
    let (item, rest) = leading_integer(&rest[1..])?;
    rest.is_empty().then_some((user, item))
}

#[inline]
fn leading_integer(text: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0i64;
    let mut n = 0;
    while let Some(digit) = text.get(n).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9) {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        n += 1;
    }
    let canonical = (1..=18).contains(&n) && (n == 1 || text[0] != b'0');
    canonical.then_some((value, &text[n..]))
}

fn record(fields: &Fields, layout: &Layout, line: u64, rows: &mut Collector<'_>) -> Result<()> {
    if fields.len() != layout.n_fields {
        let problem = format!("the line has {} fields, the first one has {}", fields.len(), layout.n_fields);
        let remedy = match layout.separator {
            Separator::Byte(b',') => "quote fields that hold a comma, or give the right --delimiter",
            _ => "correct the line, or give the right --delimiter or --format",
        };
        return Err(Error::input(rows.path, line, problem, remedy));
    }
    let columns = &layout.columns;
    let number = |at: Option<usize>, what: &str| -> Result<Option<f64>> {
        let Some(text) = at.map(|at| fields.get(at)) else { return Ok(None) };
        value::number(text).map(Some).ok_or_else(|| not_a(what, "number", text, line, rows))
    };
    let timestamp = match columns.timestamp.map(|at| fields.get(at)) {
        Some(text) => Some(value::timestamp(text).ok_or_else(|| not_a("time", "time", text, line, rows))?),
        None => None,
    };
    let values = Values {
        rating: number(columns.rating, "rating")?,
        weight: number(columns.weight, "weight")?,
        timestamp,
    };
    rows.push(id(fields, columns.user), id(fields, columns.item), values, Some(line))
}

/// An integer, blanks around it or not; any other identifier exactly as it is written.
fn id(fields: &Fields, at: usize) -> Id<'_> {
    canonical_integer(fields.get(at)).map_or_else(|| Id::Text(fields.exact(at)), Id::Integer)
}

#[cold]
fn not_a(what: &str, kind: &str, text: &[u8], line: u64, rows: &Collector<'_>) -> Error {
    let shown = String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
    let header = if line == 1 { "; if this line is a header, leave out --no-header" } else { "" };
    Error::input(
        rows.path,
        line,
        format!("the {what} `{shown}` is not a {kind}"),
        format!("correct it, or choose another column with --{what}-col{header}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_plain_integers_take_the_fast_path() {
        assert_eq!(two_integers(b"12\t3", b'\t'), Some((12, 3)));
        assert_eq!(two_integers(b"0\t0", b'\t'), Some((0, 0)));
        for line in [
            "",
            "1",
            "1\t",
            "\t1",
            "01\t2",
            "1\t02",
            "1\t2\t3",
            "1,2",
            "1\t-2",
            "1\tx",
            "1\t2 ",
            "1\t1234567890123456789",
        ] {
            assert_eq!(two_integers(line.as_bytes(), b'\t'), None, "{line:?}");
        }
    }
}
