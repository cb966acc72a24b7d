//! [`Titles`]: what to call an item when a person reads the list.
//!
//! A catalogue is often dirtier than the interactions, and a bad title harms nobody: lines that cannot be used
//! are counted, not refused, and bytes that are not UTF-8 are replaced.

use std::path::Path;

use crate::data::ids::{check_block, slice};
use crate::data::read::columns::{Column, listed, plain};
use crate::data::read::fields::{Fields, Separator, detect_delimiter};
use crate::data::read::format::complete_lines;
use crate::data::read::lines::Lines;
use crate::data::read::source::Source;
use crate::data::storage::Storage;
use crate::data::{IdMap, ItemId};
use crate::error::{Error, Result};

/// One title per item, in one block of bytes; an empty title means none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Titles {
    bytes: Storage<u8>,
    ends: Storage<u64>,
}

/// Which columns hold titles; the default finds them by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TitleOptions {
    /// The column of item identifiers.
    pub item: Option<Column>,
    /// The column of titles.
    pub title: Option<Column>,
    /// The byte between fields, where it should not be detected.
    pub delimiter: Option<u8>,
}

/// What became of the lines of a title file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TitleReport {
    /// Items that have a title now.
    pub titled: usize,
    /// Lines about items that are not in the catalogue.
    pub unknown_items: u64,
    /// Lines with the wrong number of fields or without a title.
    pub bad_lines: u64,
}

impl Titles {
    /// Takes titles in order of position.
    pub fn new<S: AsRef<str>>(titles: impl IntoIterator<Item = S>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for title in titles {
            bytes.extend_from_slice(title.as_ref().as_bytes());
            ends.push(bytes.len() as u64);
        }
        Self { bytes: bytes.into(), ends: ends.into() }
    }

    /// Titles as stored by [`Titles::parts`]: title `i` is `bytes[ends[i - 1]..ends[i]]`.
    ///
    /// # Errors
    /// [`Error::Data`] if the ends do not ascend to the length of `bytes`, or a title is not UTF-8.
    pub(crate) fn from_parts(bytes: Vec<u8>, ends: Vec<u64>) -> Result<Self> {
        Self::from_storage(bytes.into(), ends.into())
    }

    pub(crate) fn from_storage(bytes: Storage<u8>, ends: Storage<u64>) -> Result<Self> {
        check_block(&bytes, &ends, "titles")?;
        Ok(Self { bytes, ends })
    }

    /// The block of bytes and the end of each title in it.
    pub(crate) fn parts(&self) -> (&[u8], &[u64]) {
        (&self.bytes, &self.ends)
    }

    /// Number of items, those without a title included.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The title of `item`, if it has one.
    pub fn get(&self, item: ItemId) -> Option<&str> {
        let at = item as usize;
        if at >= self.ends.len() {
            return None;
        }
        let title = std::str::from_utf8(slice(&self.bytes, &self.ends, at)).expect("titles are UTF-8");
        Some(title).filter(|title| !title.is_empty())
    }

    /// Reads titles of the items in `items`: CSV or TSV with a header, or MovieLens `item::title::...`.
    ///
    /// Columns named author and year are appended: `Title - Author (Year)`. The first line about an item counts.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Input`] if the file cannot be opened or has no such columns.
    pub fn read(
        path: impl AsRef<Path>,
        options: &TitleOptions,
        items: &IdMap,
    ) -> Result<(Self, TitleReport)> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let sample: Vec<&[u8]> = complete_lines(source.sample()).take(20).collect();
        let Some(first) = sample.first() else {
            return Err(Error::input(path, None, "the file is empty", "give a file with item titles"));
        };
        let separator = match options.delimiter {
            Some(delimiter) => Separator::of_delimiter(delimiter),
            None if memchr::memmem::find(first, b"::").is_some() => Separator::TwoColons,
            // Titles have spaces and commas of their own, so one line decides, and a tab beats all.
            None if first.contains(&b'\t') => Separator::Byte(b'\t'),
            None => detect_delimiter(&sample[..1]).unwrap_or(Separator::Byte(b',')),
        };
        // A title that starts with a quote is common in tab-separated files, and quoting is not.
        let quoting = !matches!(separator, Separator::TwoColons | Separator::Byte(b'\t'));
        let mut lines = Lines::new(source)?;
        let mut fields = Fields::default();
        let layout = if separator == Separator::TwoColons {
            Layout::movielens(options)
        } else {
            fields.read(&mut lines, separator, quoting)?;
            let header: Vec<String> =
                fields.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            Layout::in_header(path, &header, options)?
        };
        let mut titles = vec![None; items.len()];
        let mut report = TitleReport::default();
        while fields.read(&mut lines, separator, quoting)? {
            if fields.len() <= layout.item.max(layout.title)
                || (layout.n_fields.is_some_and(|n| n != fields.len()))
                || fields.get(layout.title).is_empty()
            {
                report.bad_lines += 1;
                continue;
            }
            let exact = items.position_of_bytes(fields.exact(layout.item));
            let Some(item) = exact.or_else(|| items.position_of_bytes(fields.get(layout.item))) else {
                report.unknown_items += 1;
                continue;
            };
            titles[item as usize].get_or_insert_with(|| layout.title_of(&fields));
        }
        report.titled = titles.iter().flatten().count();
        tracing::info!(
            path = %path.display(),
            titled = report.titled,
            items = items.len(),
            unknown_items = report.unknown_items,
            bad_lines = report.bad_lines,
            "read titles"
        );
        Ok((Self::new(titles.into_iter().map(Option::unwrap_or_default)), report))
    }
}

/// Which fields make up a title.
struct Layout {
    item: usize,
    title: usize,
    author: Option<usize>,
    year: Option<usize>,
    /// Absent where the number of fields may vary.
    n_fields: Option<usize>,
}

impl Layout {
    fn movielens(options: &TitleOptions) -> Self {
        let number = |column: &Option<Column>, default| match column {
            Some(Column::Number(number)) => *number,
            _ => default,
        };
        let (item, title) = (number(&options.item, 0), number(&options.title, 1));
        Self { item, title, author: None, year: None, n_fields: None }
    }

    fn in_header(path: &Path, header: &[String], options: &TitleOptions) -> Result<Self> {
        let named = |names: &[&str]| {
            names.iter().find_map(|known| header.iter().position(|name| plain(name) == *known))
        };
        let found = |column: &Option<Column>, names: &[&str], what: &str, flag: &str| {
            let at = match column {
                Some(Column::Number(number)) => Some(*number).filter(|&number| number < header.len()),
                Some(Column::Name(asked)) => header.iter().position(|name| name == asked),
                None => named(names),
            };
            at.ok_or_else(|| {
                let asked = column.as_ref().map(|column| format!(" `{column}`")).unwrap_or_default();
                let problem = format!("there is no {what} column{asked} among {}", listed(header));
                Error::input(
                    path,
                    1,
                    problem,
                    format!("give one of these with {flag}, or another --delimiter"),
                )
            })
        };
        Ok(Self {
            item: found(&options.item, crate::data::read::columns::ITEM_NAMES, "item", "--item-col")?,
            title: found(&options.title, TITLE_NAMES, "title", "--title-col")?,
            author: named(&["author", "authors", "bookauthor", "artistname", "brand"]),
            year: named(&["year", "yearofpublication", "releaseyear"]),
            n_fields: Some(header.len()),
        })
    }

    fn title_of(&self, fields: &Fields) -> String {
        let text = |at: usize| String::from_utf8_lossy(fields.get(at)).into_owned();
        let mut title = text(self.title);
        if let Some(author) = self.author.map(text).filter(|author| !author.is_empty()) {
            title.push_str(" - ");
            title.push_str(&author);
        }
        // Catalogues write an unknown year as 0.
        if let Some(year) = self.year.map(text).filter(|year| !year.is_empty() && year != "0") {
            title.push_str(&format!(" ({year})"));
        }
        title
    }
}

const TITLE_NAMES: &[&str] =
    &["title", "name", "booktitle", "movietitle", "itemname", "productname", "trackname"];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &[u8], ids: &[&str]) -> Result<(Titles, TitleReport)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Titles::read(path, &TitleOptions::default(), &IdMap::from_strings(ids).unwrap())
    }

    #[test]
    fn author_and_year_follow_the_title() {
        let text = b"isbn\ttitle\tauthor\tyear\nx1\tDune\tFrank Herbert\t1965\nx2\t\"Hi\" she said\t\t0\n";
        let (titles, report) = read("books.tsv", text, &["x1", "x2", "x3"]).unwrap();
        assert_eq!(titles.get(0), Some("Dune - Frank Herbert (1965)"));
        assert_eq!(titles.get(1), Some("\"Hi\" she said"));
        assert_eq!((titles.get(2), titles.get(9)), (None, None));
        assert_eq!(report, TitleReport { titled: 2, unknown_items: 0, bad_lines: 0 });
    }

    #[test]
    fn quoted_titles_keep_their_commas() {
        let text = b"movieId,title,genres\n1,\"Heat, The\",Crime\n1,Other,x\n";
        let (titles, _) = read("movies.csv", text, &["1"]).unwrap();
        assert_eq!(titles.get(0), Some("Heat, The"));
    }

    #[test]
    fn movielens_titles_need_no_header() {
        let text = b"0000628::The Adventures of Dollie (1908)::Action|Short\n";
        let (titles, _) = read("movies.dat", text, &["0000628"]).unwrap();
        assert_eq!(titles.get(0), Some("The Adventures of Dollie (1908)"));
    }

    #[test]
    fn dirty_lines_are_counted() {
        let text = b"item_id\ttitle\na\tCaf\xe9\nb\nc\tx\ty\nd\t\ne\tUnknown\n";
        let (titles, report) = read("books.tsv", text, &["a", "b", "c", "d"]).unwrap();
        assert_eq!(titles.get(0), Some("Caf\u{fffd}"));
        assert_eq!(report, TitleReport { titled: 1, unknown_items: 1, bad_lines: 3 });
    }

    #[test]
    fn missing_columns_are_named() {
        let error = read("t.csv", b"item,label\n1,x\n", &["1"]).unwrap_err().to_string();
        assert!(error.contains("t.csv:1: there is no title column among `item`, `label`"), "{error}");
        assert!(error.contains("--title-col"), "{error}");
        assert!(read("t.csv", b"", &["1"]).unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn parts_give_the_titles_back() {
        let titles = Titles::new(["a", "", "ß"]);
        let (bytes, ends) = titles.parts();
        assert_eq!(Titles::from_parts(bytes.to_vec(), ends.to_vec()).unwrap(), titles);
        assert!(Titles::from_parts(vec![0xff], vec![1]).unwrap_err().to_string().contains("not UTF-8"));
        assert!(Titles::from_parts(vec![b'a'], vec![2]).is_err());
    }
}
