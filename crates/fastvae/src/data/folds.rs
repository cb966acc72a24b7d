//! Cross-validation: every interaction is tested once.

use crate::data::{Interactions, UserId};
use crate::error::{Error, Result};
use crate::math::random::{Purpose, Stream};

/// Part `fold` of `n_folds`: what is trained on, and what is tested. All parts together test every interaction of
/// users with at least two of them once; both results have all users and items.
///
/// A user's items are dealt to the folds in a random order that starts at a random fold, so that folds are alike
/// in size even where histories are shorter than `n_folds`.
///
/// # Errors
/// [`Error::Config`] if there are fewer than 2 folds or `fold` is not one of them; [`Error::Data`] if no user has
/// `n_folds` interactions.
pub fn fold(
    data: &Interactions,
    n_folds: usize,
    fold: usize,
    seed: u64,
) -> Result<(Interactions, Interactions)> {
    if n_folds < 2 || fold >= n_folds {
        return Err(Error::config(
            "folds",
            format!("fold {fold} of {n_folds} does not exist"),
            "give at least 2 folds",
        ));
    }
    let longest = data.offsets().windows(2).map(|span| span[1] - span[0]).max().unwrap_or(0);
    if longest < n_folds {
        return Err(Error::data(
            format!(
                "no user has {n_folds} interactions (the most is {longest}), too few for {n_folds} folds"
            ),
            "give fewer --folds or more data",
        ));
    }
    let mut train = vec![true; data.n_interactions()];
    for (user, span) in data.offsets().windows(2).enumerate() {
        let n = span[1] - span[0];
        if n < 2 {
            continue;
        }
        let mut stream = Stream::with_part(seed, Purpose::Split, 1, 0, user as UserId);
        let start = stream.below(n_folds as u64) as usize;
        let mut order: Vec<usize> = (0..n).collect();
        stream.shuffle(&mut order);
        for (turn, &at) in order.iter().enumerate() {
            train[span[0] + at] = (turn + start) % n_folds != fold;
        }
    }
    Ok(data.partition(&train))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::data::IdMap;

    /// User u has u items.
    fn staircase(n: usize) -> Interactions {
        let mut offsets = vec![0];
        let mut items = Vec::new();
        for user in 0..n {
            items.extend(0..user as u32);
            offsets.push(items.len());
        }
        let ids = || Arc::new(IdMap::range(n));
        Interactions::from_parts(offsets, items, None, None, ids(), ids()).unwrap()
    }

    #[test]
    fn folds_test_every_interaction_once() {
        let data = staircase(40);
        let mut tested = vec![vec![0; 40]; 40];
        for k in 0..5 {
            let (train, test) = fold(&data, 5, k, 3).unwrap();
            assert_eq!(train.n_interactions() + test.n_interactions(), data.n_interactions());
            for user in 0..40 {
                test.row(user).items.iter().for_each(|&item| tested[user][item as usize] += 1);
                assert!(user == 0 || !train.row(user).items.is_empty());
            }
            // A fifth of 780, within five deviations of a sum of uneven remainders.
            assert!((test.n_interactions() as f64 - 156.0).abs() < 15.0, "{}", test.n_interactions());
        }
        for (user, counts) in tested.iter().enumerate() {
            let times = if user < 2 { 0 } else { 1 };
            assert!(counts[..user].iter().all(|&count| count == times), "{user}: {counts:?}");
        }
    }

    #[test]
    fn too_few_interactions_say_so() {
        let error = fold(&staircase(4), 5, 0, 0).unwrap_err().to_string();
        assert!(error.contains("no user has 5 interactions (the most is 3)"), "{error}");
        assert!(fold(&staircase(9), 1, 0, 0).is_err() && fold(&staircase(9), 3, 3, 0).is_err());
    }
}
