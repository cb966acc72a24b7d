//! What a run holds out of its data to choose by, and whether it learns from that too in the end.

use crate::config::Config;
use crate::data::split::hold_out;
use crate::data::{Interactions, UserId};
use crate::error::{Error, Result};

/// Users that are validated on in data of fewer than [`MANY_USERS`], where everything is learned again from all of them.
const ENOUGH_USERS: usize = 2000;
const MANY_USERS: usize = 20_000;
/// Trainings on different parts that choose together, at most, where one has fewer than [`ENOUGH_USERS`] to choose by.
const MOST_TRIALS: usize = 8;
/// Share of a validation user's items that is held out.
const VALIDATION_SHARE: f64 = 0.2;
/// Share of the interactions that a validation part may keep from the model.
const LEFT_ASIDE: f64 = 0.02;

/// Users that a validation part is held out of, where they have enough items.
fn validation_users(config: &Config, n_users: usize) -> usize {
    match config.validation_users {
        0 if n_users < MANY_USERS => ENOUGH_USERS,
        0 => ENOUGH_USERS / 2,
        given => given,
    }
}

/// Whether a part of so many interactions is too much to leave aside.
fn matters(held_out: usize, data: &Interactions) -> bool {
    held_out as f64 > LEFT_ASIDE * data.n_interactions() as f64
}

/// Whether all is learned again where so many interactions were held out: they matter, or there is to be a second network anyway.
pub(super) fn learns_again(config: &Config, held_out: usize, data: &Interactions) -> bool {
    matters(held_out, data) || (config.pair && held_out > 0)
}

/// Trainings that choose together, each by a part like this one of `data`: several where it is few users to choose by and all
/// is learned again for its sake.
pub(super) fn n_trials(config: &Config, part: &Interactions, data: &Interactions) -> usize {
    match config.ridge.weight.is_none() && matters(part.n_interactions(), data) {
        true => ENOUGH_USERS.div_ceil(active(part).len().max(1)).min(MOST_TRIALS),
        false => 1,
    }
}

/// Trainings of a run that is given no validation part, each of all its epochs: those that choose, and where it matters one on
/// everything.
pub fn expected_trainings(config: &Config, data: &Interactions) -> usize {
    let config = config.for_data(data.n_users(), data.n_items());
    if config.patience == 0 {
        return 1;
    }
    match held_out(&config, data) {
        Ok((_, part)) if learns_again(&config, part.n_interactions(), data) => {
            n_trials(&config, &part, data) + 1
        }
        _ => 1,
    }
}

/// The data less a validation part, and that part.
pub(super) fn held_out(config: &Config, data: &Interactions) -> Result<(Interactions, Interactions)> {
    hold_out(data, validation_users(config, data.n_users()), VALIDATION_SHARE, config.seed)
}

/// Refuses data that nothing can be learned from.
pub(super) fn check_data(data: &Interactions) -> Result<()> {
    let (interactions, items) = (data.n_interactions(), data.n_items());
    if interactions == 0 || items < 2 {
        return Err(Error::data(
            format!("{interactions} interactions with {items} items are nothing to learn from"),
            "give more data, or a lower --k-core or --min-rating",
        ));
    }
    Ok(())
}

/// Refuses a part that is of other users or items than `data`.
pub(super) fn check_part(data: &Interactions, part: &Interactions) -> Result<()> {
    let (of_data, of_part) = ((data.n_users(), data.n_items()), (part.n_users(), part.n_items()));
    if of_data == of_part && part.n_interactions() > 0 {
        return Ok(());
    }
    Err(Error::data(
        format!(
            "the validation part has {} interactions of {} x {} users and items, the data is {} x {}",
            part.n_interactions(),
            of_part.0,
            of_part.1,
            of_data.0,
            of_data.1
        ),
        "give held-out interactions of the same users and items",
    ))
}

/// The users with interactions.
pub(super) fn active(data: &Interactions) -> Vec<UserId> {
    (0..data.n_users() as UserId).filter(|&user| !data.row(user as usize).items.is_empty()).collect()
}
