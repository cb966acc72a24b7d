//! [`Split`]: which interactions are learned from and which are tested on.
//!
//! Every draw comes from the address (seed, user), so a split does not depend on threads or on other users.

use std::fmt;
use std::str::FromStr;

use crate::data::{Interactions, UserId};
use crate::error::{Error, Result};
use crate::math::random::{Purpose, Stream};

/// A way to divide interactions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Split {
    /// Of each user's n items, round(ratio n) at random are trained on (at least 1): the paper's protocol.
    Ratio(f64),
    /// Each user's latest item is tested, a random one without timestamps; users with one item only train.
    LeaveOneOut,
    /// What happened before this quantile of all timestamps is trained on.
    Temporal(f64),
    /// This share of the users is held out altogether and folded in: 80 % of their items are history.
    Users(f64),
}

/// The share of a held-out user's items that is shown to the model.
const HISTORY_SHARE: f64 = 0.8;
/// Users with fewer items are not sampled for validation.
const MIN_VALIDATION_HISTORY: usize = 2;

/// The parts of a split. All of them have the whole catalogue.
///
/// Without `history`, `train` and `test` both have all users of the data: row `u` is the same user in both.
/// With `history` (from [`Split::Users`]), `train` has the other users, and `history` and `test` have the
/// held-out ones: row `u` is the same user in these two.
#[derive(Debug, Clone)]
pub struct SplitParts {
    /// What the model learns from.
    pub train: Interactions,
    /// What it must find.
    pub test: Interactions,
    /// What it is shown of users it has not learned from.
    pub history: Option<Interactions>,
}

impl Split {
    /// Divides `data`.
    ///
    /// # Errors
    /// [`Error::Data`] if a temporal split has no timestamps, or a part would be empty;
    /// [`Error::Config`] if a share is not between 0 and 1.
    pub fn apply(self, data: &Interactions, seed: u64) -> Result<SplitParts> {
        self.validate()?;
        let parts = match self {
            Self::Ratio(ratio) => both(data.partition(&by_ratio(data, ratio, seed))),
            Self::LeaveOneOut => both(data.partition(&by_last(data, seed))),
            Self::Temporal(quantile) => both(data.partition(&by_time(data, quantile)?)),
            Self::Users(share) => by_user(data, share, seed)?,
        };
        for (part, what) in [(&parts.train, "train"), (&parts.test, "test")] {
            if part.n_interactions() == 0 {
                return Err(Error::data(
                    format!(
                        "the split {self} of {} interactions leaves none to {what} on",
                        data.n_interactions()
                    ),
                    "change the split or read more data",
                ));
            }
        }
        Ok(parts)
    }

    fn validate(self) -> Result<()> {
        match self {
            Self::Ratio(share) | Self::Temporal(share) | Self::Users(share)
                if !(share > 0.0 && share < 1.0) =>
            {
                Err(Error::config("split", format!("the share in `{self}` is not between 0 and 1"), EXAMPLES))
            }
            _ => Ok(()),
        }
    }
}

const EXAMPLES: &str = "use one of ratio:0.8, leave-one-out, temporal:0.8, users:0.1";

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || Error::config("split", format!("`{text}` is not a split"), EXAMPLES);
        let (kind, share) = match text.split_once(':') {
            Some((kind, share)) => (kind, Some(share.parse::<f64>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let split = match (kind, share) {
            ("ratio", share) => Self::Ratio(share.unwrap_or(0.8)),
            ("leave-one-out", None) => Self::LeaveOneOut,
            ("temporal", share) => Self::Temporal(share.unwrap_or(0.8)),
            ("users", share) => Self::Users(share.unwrap_or(0.1)),
            _ => return Err(unknown()),
        };
        split.validate()?;
        Ok(split)
    }
}

impl fmt::Display for Split {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio(share) => write!(out, "ratio:{share}"),
            Self::LeaveOneOut => write!(out, "leave-one-out"),
            Self::Temporal(share) => write!(out, "temporal:{share}"),
            Self::Users(share) => write!(out, "users:{share}"),
        }
    }
}

/// Samples `n_users` users with at least 2 items and holds out `fraction` of their items, at least 1.
///
/// Returns what remains and what was held out; both have all users and items. Fewer users are sampled where
/// the data has fewer.
///
/// # Errors
/// [`Error::Data`] if no user has 2 items; [`Error::Config`] if `fraction` is not between 0 and 1.
pub fn hold_out(
    data: &Interactions,
    n_users: usize,
    fraction: f64,
    seed: u64,
) -> Result<(Interactions, Interactions)> {
    if !(fraction > 0.0 && fraction < 1.0) {
        return Err(Error::config(
            "validation.fraction",
            format!("{fraction} is not between 0 and 1"),
            "use for example 0.2",
        ));
    }
    let length = |user: UserId| data.row(user as usize).items.len();
    let mut users: Vec<UserId> =
        (0..data.n_users() as UserId).filter(|&user| length(user) >= MIN_VALIDATION_HISTORY).collect();
    if users.is_empty() {
        return Err(Error::data(
            format!("none of {} users has {MIN_VALIDATION_HISTORY} items to validate on", data.n_users()),
            "train without validation (--set patience=0), or read more data",
        ));
    }
    Stream::new(seed, Purpose::Validation, 0, UserId::MAX).shuffle(&mut users);
    users.truncate(n_users);
    let mut keep = vec![true; data.n_interactions()];
    for &user in &users {
        let n = length(user);
        let n_held = ((fraction * n as f64).round() as usize).clamp(1, n - 1);
        for at in drawn(n, n_held, Stream::new(seed, Purpose::Validation, 0, user)) {
            keep[data.offsets()[user as usize] + at] = false;
        }
    }
    Ok(data.partition(&keep))
}

fn both((train, test): (Interactions, Interactions)) -> SplitParts {
    SplitParts { train, test, history: None }
}

/// `n_drawn` of `0..n` without repetition.
fn drawn(n: usize, n_drawn: usize, mut stream: Stream) -> Vec<usize> {
    let mut places: Vec<usize> = (0..n).collect();
    stream.shuffle(&mut places);
    places.truncate(n_drawn);
    places
}

fn by_ratio(data: &Interactions, ratio: f64, seed: u64) -> Vec<bool> {
    let mut train = vec![false; data.n_interactions()];
    for (user, span) in data.offsets().windows(2).enumerate() {
        let n = span[1] - span[0];
        let n_train = ((ratio * n as f64).round() as usize).max(1).min(n);
        for at in drawn(n, n_train, Stream::new(seed, Purpose::Split, 0, user as u32)) {
            train[span[0] + at] = true;
        }
    }
    train
}

fn by_last(data: &Interactions, seed: u64) -> Vec<bool> {
    let mut train = vec![true; data.n_interactions()];
    for (user, span) in data.offsets().windows(2).enumerate() {
        let n = span[1] - span[0];
        if n < 2 {
            continue;
        }
        let last = match data.row(user).timestamps {
            // The later item wins a tie, so the choice does not depend on the order of the file.
            Some(times) => (0..n).max_by_key(|&at| (times[at], at)).expect("n is at least 2"),
            None => Stream::new(seed, Purpose::Split, 0, user as u32).below(n as u64) as usize,
        };
        train[span[0] + last] = false;
    }
    train
}

fn by_time(data: &Interactions, quantile: f64) -> Result<Vec<bool>> {
    let times = data.timestamps().ok_or_else(|| {
        Error::data(
            "a temporal split needs timestamps and the data has none",
            "name their column with --time-col, or split with ratio:0.8",
        )
    })?;
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = ((quantile * sorted.len() as f64).round() as usize).min(sorted.len().saturating_sub(1));
    let Some(&boundary) = sorted.get(rank) else { return Ok(Vec::new()) };
    Ok(times.iter().map(|&time| time < boundary).collect())
}

fn by_user(data: &Interactions, share: f64, seed: u64) -> Result<SplitParts> {
    let mut users: Vec<UserId> = (0..data.n_users() as UserId).collect();
    Stream::new(seed, Purpose::Split, 0, UserId::MAX).shuffle(&mut users);
    let n_held = ((share * users.len() as f64).round() as usize).max(1).min(users.len());
    let (held, others) = users.split_at_mut(n_held);
    held.sort_unstable();
    others.sort_unstable();
    let train = data.select_users(others)?;
    let folded = data.select_users(held)?;
    let (history, test) = folded.partition(&by_ratio(&folded, HISTORY_SHARE, seed));
    Ok(SplitParts { train, test, history: Some(history) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::IdMap;
    use std::sync::Arc;

    /// User u has u items, with descending timestamps.
    fn staircase(n_users: usize, timed: bool) -> Interactions {
        let mut offsets = vec![0];
        let mut items = Vec::new();
        for user in 0..n_users {
            items.extend(0..user as u32);
            offsets.push(items.len());
        }
        let times = timed.then(|| items.iter().map(|&item| 1000 - i64::from(item)).collect());
        let users = Arc::new(IdMap::range(n_users));
        let item_ids = Arc::new(IdMap::range(n_users));
        Interactions::from_parts(offsets, items, None, times, users, item_ids).unwrap()
    }

    fn lengths(data: &Interactions) -> Vec<usize> {
        data.offsets().windows(2).map(|span| span[1] - span[0]).collect()
    }

    #[test]
    fn a_ratio_rounds_per_user_and_keeps_one_to_train() {
        let data = staircase(11, false);
        let parts = Split::Ratio(0.8).apply(&data, 1).unwrap();
        assert_eq!(lengths(&parts.train), [0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8]);
        assert_eq!(parts.train.n_interactions() + parts.test.n_interactions(), data.n_interactions());
        let tiny = Split::Ratio(0.1).apply(&data, 1).unwrap();
        assert_eq!(lengths(&tiny.train)[1..], [1; 10]);
        for user in 0..11 {
            let train = parts.train.row(user).items;
            assert!(parts.test.row(user).items.iter().all(|item| !train.contains(item)));
        }
    }

    #[test]
    fn a_seed_decides_the_split() {
        let data = staircase(30, false);
        let items = |seed| Split::Ratio(0.5).apply(&data, seed).unwrap().test.items().to_vec();
        assert_eq!(items(3), items(3));
        assert_ne!(items(3), items(4));
    }

    #[test]
    fn leave_one_out_tests_the_latest_item() {
        let parts = Split::LeaveOneOut.apply(&staircase(6, true), 0).unwrap();
        assert_eq!(lengths(&parts.test), [0, 0, 1, 1, 1, 1]);
        assert_eq!(parts.test.items(), [0; 4]);
        let random = Split::LeaveOneOut.apply(&staircase(30, false), 0).unwrap();
        assert!(random.test.items().iter().any(|&item| item != 0));
    }

    #[test]
    fn a_temporal_split_trains_on_what_came_before() {
        let data = staircase(20, true);
        let parts = Split::Temporal(0.8).apply(&data, 0).unwrap();
        let latest = parts.train.timestamps().unwrap().iter().max().unwrap();
        assert!(parts.test.timestamps().unwrap().iter().all(|time| time > latest));
        let error = Split::Temporal(0.8).apply(&staircase(20, false), 0).unwrap_err().to_string();
        assert!(error.contains("needs timestamps") && error.contains("--time-col"), "{error}");
    }

    #[test]
    fn held_out_users_are_folded_in() {
        let data = staircase(20, false);
        let parts = Split::Users(0.25).apply(&data, 9).unwrap();
        let history = parts.history.unwrap();
        assert_eq!((parts.train.n_users(), history.n_users(), parts.test.n_users()), (15, 5, 5));
        for user in 0..5 {
            let name = history.user_ids().name(user as u32);
            let n = name.parse::<usize>().unwrap();
            assert_eq!(history.row(user).items.len() + parts.test.row(user).items.len(), n);
            assert_eq!(parts.train.user_ids().position(&name), None);
            assert_eq!(parts.test.user_ids().name(user as u32), name);
        }
    }

    #[test]
    fn validation_takes_a_few_items_of_a_few_users() {
        let data = staircase(40, false);
        let (train, validation) = hold_out(&data, 7, 0.2, 5).unwrap();
        assert_eq!(train.n_interactions() + validation.n_interactions(), data.n_interactions());
        let held: Vec<usize> = (0..40).filter(|&u| !validation.row(u).items.is_empty()).collect();
        assert_eq!(held.len(), 7);
        for user in held {
            assert!(user >= 2);
            assert_eq!(validation.row(user).items.len(), ((user as f64 * 0.2).round() as usize).max(1));
        }
        assert!(
            hold_out(&staircase(2, false), 7, 0.2, 5).unwrap_err().to_string().contains("none of 2 users")
        );
        assert!(hold_out(&data, 7, 1.0, 5).is_err());
    }

    #[test]
    fn splits_read_as_they_print() {
        for text in ["ratio:0.8", "leave-one-out", "temporal:0.75", "users:0.1"] {
            assert_eq!(text.parse::<Split>().unwrap().to_string(), text);
        }
        for text in ["ratio:1.5", "ratio:x", "random", "leave-one-out:2", "users:NaN"] {
            assert!(text.parse::<Split>().unwrap_err().to_string().contains("ratio:0.8"), "{text}");
        }
    }

    #[test]
    fn an_empty_part_is_an_error() {
        let error = Split::LeaveOneOut.apply(&staircase(2, false), 0).unwrap_err().to_string();
        assert!(error.contains("leaves none to test on"), "{error}");
    }
}
