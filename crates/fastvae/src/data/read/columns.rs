//! [`Column`]: which field of a record means what.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::data::read::ReadOptions;
use crate::error::{Error, Result};

/// A column by its name in the header, or by its number from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// Number, from 0.
    Number(usize),
    /// Name in the header, as it is written there.
    Name(String),
}

impl FromStr for Column {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_string()), Self::Number))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Name(name) => out.write_str(name),
        }
    }
}

/// Names people give to a column of items, spelled as by [`plain`]; the likelier first.
pub(crate) const ITEM_NAMES: &[&str] = &[
    "item",
    "itemid",
    "iid",
    "items",
    "movieid",
    "movie",
    "isbn",
    "productid",
    "product",
    "bookid",
    "book",
    "trackid",
    "songid",
    "track",
    "song",
    "artistid",
    "artist",
    "asin",
    "parentasin",
    "articleid",
    "businessid",
    "gameid",
    "animeid",
    "recipeid",
    "newsid",
    "videoid",
    "locationid",
    "poiid",
    "sku",
];

/// What a column is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    User,
    Item,
    Rating,
    Weight,
    Time,
}

impl Role {
    /// Names people give to such a column, in lower case without `_`, `-` and blanks; the likelier first.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::User => &[
                "user",
                "userid",
                "uid",
                "username",
                "users",
                "customer",
                "customerid",
                "visitorid",
                "visitor",
                "reviewerid",
                "memberid",
                "accountid",
                "sessionid",
                "clientid",
            ],
            Self::Item => ITEM_NAMES,
            Self::Rating => &["rating", "ratings", "score", "stars", "bookrating", "overall"],
            Self::Weight => {
                &["weight", "count", "plays", "playcount", "confidence", "quantity", "weights", "counts"]
            }
            Self::Time => {
                &["timestamp", "time", "ts", "datetime", "date", "unixtime", "unixreviewtime", "createdat"]
            }
        }
    }

    fn flag(self) -> &'static str {
        match self {
            Self::User => "--user-col",
            Self::Item => "--item-col",
            Self::Rating => "--rating-col",
            Self::Weight => "--weight-col",
            Self::Time => "--time-col",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Item => "item",
            Self::Rating => "rating",
            Self::Weight => "weight",
            Self::Time => "timestamp",
        }
    }

    fn option(self, options: &ReadOptions) -> Option<&Column> {
        match self {
            Self::User => options.user.as_ref(),
            Self::Item => options.item.as_ref(),
            Self::Rating => options.rating.as_ref(),
            Self::Weight => options.weight.as_ref(),
            Self::Time => options.timestamp.as_ref(),
        }
    }
}

/// The columns that are read. The rating is absent where nothing asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) user: usize,
    pub(crate) item: usize,
    pub(crate) rating: Option<usize>,
    pub(crate) weight: Option<usize>,
    pub(crate) timestamp: Option<usize>,
}

impl Columns {
    /// Finds the columns in a header.
    pub(crate) fn in_header(path: &Path, header: &[String], options: &ReadOptions) -> Result<Self> {
        let find = |role: Role| -> Result<Option<usize>> {
            match role.option(options) {
                Some(column) => given(path, header.len(), Some(header), column, role).map(Some),
                None => Ok(recognised(header, role)),
            }
        };
        let found = |role: Role| {
            find(role)?.ok_or_else(|| {
                let problem = format!("no {} column among {}", role.word(), listed(header));
                Error::input(path, 1, problem, format!("name it with {}", role.flag()))
            })
        };
        let columns = Self {
            user: found(Role::User)?,
            item: found(Role::Item)?,
            rating: if options.min_rating.is_some() { Some(found(Role::Rating)?) } else { None },
            weight: find(Role::Weight)?,
            timestamp: find(Role::Time)?,
        };
        columns.check(path)
    }

    /// Without a header: user, item, then rating where numeric, then timestamp.
    ///
    /// `records` are the first ones.
    pub(crate) fn by_number(path: &Path, records: &[Vec<String>], options: &ReadOptions) -> Result<Self> {
        let n_fields = records.first().map_or(0, Vec::len);
        if options.user.is_none() && options.item.is_none() && look_like_titles(records) {
            let problem = format!(
                "`{}` reads like an item and its title, not like an interaction",
                records[0].join(" ")
            );
            let remedy = "give the file of interactions, and this one as --titles; if these are users and their items, say so \
                          with --user-col 0 --item-col 1";
            return Err(Error::input(path, 1, problem, remedy));
        }
        let all = |at: usize, test: &dyn Fn(f64) -> bool| {
            n_fields > at && records.iter().all(|r| r.get(at).is_some_and(|f| f.parse().is_ok_and(test)))
        };
        // Three columns may be user, item, time: no rating is as large as a date after 1973.
        let third_is_time = n_fields == 3 && all(2, &|value| value >= 1e8);
        let default = |role: Role| match role {
            Role::User => (n_fields > 0).then_some(0),
            Role::Item => (n_fields > 1).then_some(1),
            Role::Rating => (all(2, &|_| true) && !third_is_time).then_some(2),
            Role::Weight => None,
            Role::Time if third_is_time => Some(2),
            Role::Time => (all(3, &|_| true)).then_some(3),
        };
        let find = |role: Role| -> Result<Option<usize>> {
            match role.option(options) {
                Some(column) => given(path, n_fields, None, column, role).map(Some),
                None => Ok(default(role)),
            }
        };
        let found = |role: Role| {
            find(role)?.ok_or_else(|| {
                let problem = format!("no {} column among {n_fields}", role.word());
                Error::input(
                    path,
                    1,
                    problem,
                    format!("give it with {}, or another --delimiter", role.flag()),
                )
            })
        };
        let columns = Self {
            user: found(Role::User)?,
            item: found(Role::Item)?,
            rating: if options.min_rating.is_some() { Some(found(Role::Rating)?) } else { None },
            weight: find(Role::Weight)?,
            timestamp: find(Role::Time)?,
        };
        // A column taken on purpose is not also the timestamp by habit.
        let taken = [Some(columns.user), Some(columns.item), columns.rating, columns.weight];
        let timestamp =
            columns.timestamp.filter(|at| options.timestamp.is_some() || !taken.contains(&Some(*at)));
        Self { timestamp, ..columns }.check(path)
    }

    fn check(self, path: &Path) -> Result<Self> {
        if self.user == self.item {
            return Err(Error::input(
                path,
                None,
                format!("users and items are both read from column {}", self.user),
                "give two columns with --user-col and --item-col",
            ));
        }
        Ok(self)
    }
}

/// Whether the first records of a file without header are items with their titles: no first field comes twice, most second
/// ones are several words, and nothing behind them is a number throughout, as ratings and timestamps are.
fn look_like_titles(records: &[Vec<String>]) -> bool {
    /// Fewer records say too little.
    const ENOUGH: usize = 5;
    let numbers = |at: usize| records.iter().all(|r| r.get(at).is_some_and(|f| f.parse::<f64>().is_ok()));
    let n_fields = records.first().map_or(0, Vec::len);
    let items: HashSet<&String> = records.iter().filter_map(|record| record.first()).collect();
    let of_words =
        records.iter().filter(|record| record.get(1).is_some_and(|f| f.trim().contains(' '))).count();
    records.len() >= ENOUGH
        && items.len() == records.len()
        && 2 * of_words > records.len()
        && !(2..n_fields).any(numbers)
}

/// Whether `fields` look like a header: a column is asked for by name, they hold the names of users and items,
/// or they are only words, above numbers or with a known name.
pub(crate) fn looks_like_header(
    fields: &[String],
    next: Option<&Vec<String>>,
    options: &ReadOptions,
) -> bool {
    let roles = [Role::User, Role::Item, Role::Rating, Role::Weight, Role::Time];
    let numeric = |field: &String| field.parse::<f64>().is_ok();
    let known = |role: Role| recognised(fields, role).is_some();
    roles.iter().any(|role| matches!(role.option(options), Some(Column::Name(_))))
        || (known(Role::User) && known(Role::Item))
        || (!fields.iter().any(numeric)
            && (next.is_some_and(|next| next.iter().any(numeric)) || roles.into_iter().any(known)))
}

fn recognised(header: &[String], role: Role) -> Option<usize> {
    let plain: Vec<String> = header.iter().map(|name| plain(name)).collect();
    role.names().iter().find_map(|known| plain.iter().position(|name| name == known))
}

pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

fn given(
    path: &Path,
    n_fields: usize,
    header: Option<&[String]>,
    column: &Column,
    role: Role,
) -> Result<usize> {
    let unknown = |problem: String, remedy: String| Err(Error::input(path, 1, problem, remedy));
    let word = role.word();
    match (column, header) {
        (Column::Number(number), _) if *number < n_fields => Ok(*number),
        (Column::Number(number), _) => unknown(
            format!("there is no {word} column {number} among {n_fields}"),
            format!("give {} from 0 to {}", role.flag(), n_fields.saturating_sub(1)),
        ),
        (Column::Name(name), Some(header)) => match header.iter().position(|found| found == name) {
            Some(at) => Ok(at),
            None => unknown(
                format!("there is no {word} column `{name}` among {}", listed(header)),
                format!("give one of these with {}", role.flag()),
            ),
        },
        (Column::Name(name), None) => unknown(
            format!("there is no {word} column `{name}`: the file has no header"),
            format!("give {} as a number from 0, or drop --no-header", role.flag()),
        ),
    }
}

pub(crate) fn listed(header: &[String]) -> String {
    header.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
