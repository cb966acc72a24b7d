//! Readers: from the files people have to [`Interactions`].
//!
//! Every format has a file here that pushes rows into one `Collector`; detection of compression, format,
//! delimiter and header looks at the first 64 KiB. Text is streamed: memory follows the interactions, not the
//! file.
//!
//! A rating is not a weight: a rating column only decides which rows stay (`min_rating`), since a low rating is
//! no weak liking. Weights come from a weight column or from the values of a matrix.

mod adjacency;
mod cached;
mod collect;
pub(in crate::data) mod columns;
mod delimited;
pub(in crate::data) mod fields;
pub(in crate::data) mod format;
pub(in crate::data) mod lines;
mod mat;
mod matrix_market;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
pub(in crate::data) mod source;
mod value;
mod zip;

use std::path::Path;
use std::sync::Arc;

use crate::data::{IdMap, IdMapBuilder, Interactions, k_core};
use crate::error::{Error, Result};

pub use collect::ReadReport;
pub use columns::Column;
pub use format::Format;

use cached::Opened;
use collect::{Collected, Collector, Final, Side};
use source::Source;

/// How to read a file; the default detects everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadOptions {
    /// The format, where it should not be detected.
    pub format: Option<Format>,
    /// The byte between fields, where it should not be detected; a space stands for any run of blanks.
    pub delimiter: Option<u8>,
    /// Whether the first line is a header, where it should not be detected.
    pub has_header: Option<bool>,
    /// The column of users.
    pub user: Option<Column>,
    /// The column of items.
    pub item: Option<Column>,
    /// The column of ratings, read only for `min_rating`.
    pub rating: Option<Column>,
    /// The column of weights.
    pub weight: Option<Column>,
    /// The column of timestamps.
    pub timestamp: Option<Column>,
    /// Drop rows with a lower rating; the values of a matrix are ratings then, not weights.
    pub min_rating: Option<f32>,
    /// Drop the weights.
    pub binarize: bool,
    /// Keep only the iterative k-core; training data only.
    pub k_core: Option<usize>,
}

/// Reads training data from `path`.
///
/// Positions of integer identifiers ascend with them; positions of strings follow their first appearance.
/// Blanks around an integer are not part of it; any other identifier is taken exactly as it is written.
/// Rows and columns of matrix formats are identified by their number from 0, empty ones included.
/// A cache is mapped instead of read, and keeps its filters and identifiers.
///
/// # Errors
/// [`Error::Io`] or [`Error::Input`] with the line and the remedy where the file cannot be read;
/// [`Error::Data`] where nothing or only one user remains.
pub fn read(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Interactions> {
    read_with_report(path, options).map(|(rows, _)| rows)
}

/// As [`read()`], with what was dropped and merged.
///
/// # Errors
/// As [`read()`].
pub fn read_with_report(path: impl AsRef<Path>, options: &ReadOptions) -> Result<(Interactions, ReadReport)> {
    let path = path.as_ref();
    let (mut rows, report) = match cached::open(source(path)?, options)? {
        Opened::Cache(_) if options.min_rating.is_some() => {
            return Err(Error::input(
                path,
                None,
                "a cache has no ratings",
                "give --min-rating to `fastvae prepare`, where the ratings are",
            ));
        }
        Opened::Cache(rows) => mapped(rows),
        Opened::Other(source) => {
            let (mut users, mut items) = (IdMapBuilder::new(), IdMapBuilder::new());
            let collected = collect(source, path, options, Side::New(&mut users), Side::New(&mut items))?;
            collected.build(&finish(users), &finish(items))?
        }
    };
    check(path, options, &rows, &report)?;
    if let Some(k) = options.k_core {
        rows = k_core(&rows, k)?;
    }
    log(path, &rows, &report);
    Ok((rows, report))
}

/// Reads `path` against the identifiers of training data: row `u` is user `u` of `users`.
///
/// Rows with an unknown user or item are skipped and counted. `k_core` does not apply.
///
/// # Errors
/// [`Error::Io`] or [`Error::Input`], as [`read()`]; [`Error::Data`] where no row is known.
pub fn read_aligned(
    path: impl AsRef<Path>,
    options: &ReadOptions,
    users: &Arc<IdMap>,
    items: &Arc<IdMap>,
) -> Result<(Interactions, ReadReport)> {
    let path = path.as_ref();
    let (rows, report) = match cached::open(source(path)?, options)? {
        Opened::Cache(rows) if cached::is_under(&rows, Some(users), items) => {
            mapped(rows.with_ids(users.clone(), items.clone()))
        }
        opened => {
            let collected = collect_opened(opened, path, options, Side::Known(users), Side::Known(items))?;
            collected.build(&(users.clone(), None), &(items.clone(), None))?
        }
    };
    check_known(path, options, &rows, &report)?;
    log(path, &rows, &report);
    Ok((rows, report))
}

/// Reads the histories of users that may be new, against the `items` of training data.
///
/// Users keep the identifiers of this file. Rows with an unknown item are skipped and counted; a user with no
/// other row is left out. `k_core` does not apply.
///
/// # Errors
/// As [`read_aligned`].
pub fn read_with_items(
    path: impl AsRef<Path>,
    options: &ReadOptions,
    items: &Arc<IdMap>,
) -> Result<(Interactions, ReadReport)> {
    let path = path.as_ref();
    let (rows, report) = match cached::open(source(path)?, options)? {
        Opened::Cache(rows) if cached::is_under(&rows, None, items) => {
            let users = rows.user_ids().clone();
            mapped(rows.with_ids(users, items.clone()))
        }
        opened => {
            let mut users = IdMapBuilder::new();
            let collected = collect_opened(opened, path, options, Side::New(&mut users), Side::Known(items))?;
            collected.build(&finish(users), &(items.clone(), None))?
        }
    };
    check_known(path, options, &rows, &report)?;
    log(path, &rows, &report);
    Ok((rows, report))
}

/// Reads a published split: both results share the users and items of the two files together.
///
/// Where `train` is a cache that knows every user and item of `test`, it stays mapped; otherwise it is read into
/// memory under the identifiers of both.
///
/// # Errors
/// As [`read()`]; [`Error::Config`] with `k_core`, which would take rows out of a split that is given.
pub fn read_pair(
    train: impl AsRef<Path>,
    test: impl AsRef<Path>,
    options: &ReadOptions,
) -> Result<(Interactions, Interactions)> {
    if let Some(k) = options.k_core {
        return Err(Error::config(
            "k_core",
            format!("a {k}-core would change the given test file"),
            "leave out --k-core, or give one file and a split",
        ));
    }
    let (train, test) = (train.as_ref(), test.as_ref());
    let opened = cached::open(source(train)?, options)?;
    if let Opened::Cache(rows) = &opened
        && let Some(pair) = mapped_pair(rows, train, test, options)?
    {
        return Ok(pair);
    }
    let (mut users, mut items) = (IdMapBuilder::new(), IdMapBuilder::new());
    let first = collect_opened(opened, train, options, Side::New(&mut users), Side::New(&mut items))?;
    let second = collect(source(test)?, test, options, Side::New(&mut users), Side::New(&mut items))?;
    let (users, items) = (finish(users), finish(items));
    let build = |path: &Path, collected: Collected| {
        let (rows, report) = collected.build(&users, &items)?;
        check(path, options, &rows, &report)?;
        log(path, &rows, &report);
        Ok(rows)
    };
    Ok((build(train, first)?, build(test, second)?))
}

/// The pair without a copy of the mapped `rows`, unless `test` has users or items that they do not know.
fn mapped_pair(
    rows: &Interactions,
    train: &Path,
    test: &Path,
    options: &ReadOptions,
) -> Result<Option<(Interactions, Interactions)>> {
    let (users, items) = (rows.user_ids(), rows.item_ids());
    let opened = cached::open(source(test)?, options)?;
    let collected = collect_opened(opened, test, options, Side::Known(users), Side::Known(items))?;
    if collected.report.unknown_users + collected.report.unknown_items > 0 {
        tracing::info!(
            path = %train.display(),
            "the test file has users or items that the cache does not: the cache is copied into memory"
        );
        return Ok(None);
    }
    let (test_rows, report) = collected.build(&(users.clone(), None), &(items.clone(), None))?;
    let (rows, all) = mapped(rows.clone());
    check(train, options, &rows, &all)?;
    log(train, &rows, &all);
    check(test, options, &test_rows, &report)?;
    log(test, &test_rows, &report);
    Ok(Some((rows, test_rows)))
}

/// The interactions of a cache as a result: nothing was dropped.
fn mapped(rows: Interactions) -> (Interactions, ReadReport) {
    let report = ReadReport { rows: rows.n_interactions() as u64, ..ReadReport::default() };
    (rows, report)
}

fn source(path: &Path) -> Result<Source> {
    let source = Source::open(path)?;
    if source.sample().is_empty() {
        return Err(Error::input(path, None, "the file is empty", "give a file with interactions"));
    }
    Ok(source)
}

/// As [`collect`], for what may be a cache that is open.
fn collect_opened<'a>(
    opened: Opened,
    path: &'a Path,
    options: &'a ReadOptions,
    users: Side<'a>,
    items: Side<'a>,
) -> Result<Collected> {
    match opened {
        Opened::Other(source) => collect(source, path, options, users, items),
        Opened::Cache(data) => {
            let mut rows = Collector::new(path, options, users, items);
            cached::push(&data, &mut rows)?;
            Ok(rows.finish())
        }
    }
}

fn collect<'a>(
    source: Source,
    path: &'a Path,
    options: &'a ReadOptions,
    users: Side<'a>,
    items: Side<'a>,
) -> Result<Collected> {
    if let Some(min) = options.min_rating.filter(|min| !min.is_finite()) {
        return Err(Error::config(
            "min_rating",
            format!("{min} is not a number"),
            "give a finite --min-rating",
        ));
    }
    let mut rows = Collector::new(path, options, users, items);
    let format = options.format.unwrap_or_else(|| Format::detect(path, source.sample()));
    match format {
        Format::Csv | Format::Tsv | Format::MovieLens | Format::RecBole => {
            delimited::read(source, format, &mut rows)?;
        }
        Format::LightGcn => adjacency::read(source, &mut rows)?,
        Format::MatrixMarket => matrix_market::read(source, &mut rows)?,
        Format::Mat => mat::read(source, &mut rows)?,
        Format::Npz => npz::read(&source, &mut rows)?,
        Format::Cache => cached::read(&source, &mut rows)?,
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::read(&source, &mut rows)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => {
            return Err(Error::input(
                path,
                None,
                "this program was built without Parquet",
                "build it with `--features parquet`, or convert the file to CSV",
            ));
        }
    }
    Ok(rows.finish())
}

fn finish(ids: IdMapBuilder) -> Final {
    let (map, moved) = ids.finish();
    (Arc::new(map), moved)
}

/// Refuses data that no model can learn from, saying what took the rows away.
fn check(path: &Path, options: &ReadOptions, rows: &Interactions, report: &ReadReport) -> Result<()> {
    check_known(path, options, rows, report)?;
    if rows.n_users() == 1 {
        return Err(Error::input(
            path,
            None,
            format!("all {} rows belong to one user, `{}`", report.rows, rows.user_ids().name(0)),
            "give data of several users, or the right --user-col",
        ));
    }
    Ok(())
}

fn check_known(path: &Path, options: &ReadOptions, rows: &Interactions, report: &ReadReport) -> Result<()> {
    if rows.n_interactions() > 0 {
        return Ok(());
    }
    let n = report.rows;
    let (problem, remedy) = if n == 0 {
        ("the file has no interactions".to_string(), "give a file with interactions")
    } else if report.below_min_rating == n {
        let min = options.min_rating.unwrap_or_default();
        (format!("all {n} ratings are below {min}"), "lower --min-rating")
    } else if report.non_positive_weights == n {
        (format!("none of {n} weights is above 0"), "choose another column with --weight-col")
    } else if report.unknown_users + report.unknown_items > 0 {
        let problem = format!(
            "none of {n} rows is known: {} have an unknown user, {} an unknown item",
            report.unknown_users, report.unknown_items
        );
        (
            problem,
            "give a file with the identifiers of the training data, or the right --user-col and --item-col",
        )
    } else {
        (format!("none of {n} rows remains"), "lower --min-rating, or check --weight-col")
    };
    Err(Error::input(path, None, problem, remedy))
}

/// Says what was read, and what was left out or merged where anything was.
fn log(path: &Path, rows: &Interactions, report: &ReadReport) {
    let some = |count: u64| (count > 0).then_some(count);
    tracing::info!(
        path = %path.display(),
        rows = report.rows,
        users = rows.n_users(),
        items = rows.n_items(),
        interactions = rows.n_interactions(),
        below_min_rating = some(report.below_min_rating),
        non_positive_weights = some(report.non_positive_weights),
        duplicates = some(report.duplicates),
        unknown_users = some(report.unknown_users),
        unknown_items = some(report.unknown_items),
        "read interactions"
    );
}
