//! What stands beside the network, chosen on the validation part: the penalty and weight of the linear part, and a weight on
//! popularity. None of it is ever chosen on test data.
//!
//! The network is done by then, so every candidate is a sum of the same parts: a user's scores by the network are worked out
//! once, and what few items the linear part adds to are ranked beside the best of the others.

use std::time::Instant;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::baseline::co_counts::{CoCounts, item_value};
use crate::baseline::item_ridge::{seconds_of_an_item, solve};
use crate::baseline::item_weights::ItemWeights;
use crate::baseline::{self, ItemRidgeSettings, Method};
use crate::config::{Config, Ridge};
use crate::control::Control;
use crate::data::{Interactions, ItemId};
use crate::error::Result;
use crate::eval::metrics::Yardstick;
use crate::eval::paired::PairedDifference;
use crate::eval::{Scored, Scorer, TopK, Viewer};
use crate::model::Blend;
use crate::model::linear::Linear;
use crate::network::Network;
use crate::train::VALIDATION_METRIC;

/// Pulls of the weights to zero that are tried, in interactions; and a larger one, which dense data want, in catalogues where
/// it costs little to try.
const PENALTIES: [f32; 4] = [10.0, 30.0, 80.0, 200.0];
const LARGE_PENALTY: f32 = 500.0;
const FEW_ITEMS: usize = 10_000;
/// Items up to which each is also explained by all others: one inverse for all of them.
const FEW_ENOUGH_FOR_ALL: usize = 1000;
/// Weights of the linear part that are tried; the network's scores are logits.
const WEIGHTS: [f32; 13] = [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 36.0, 54.0];
/// Weights on ln(1 + count) that are tried, beside the network and beside the linear part alone.
const POPULARITIES: [f32; 7] = [-0.2, -0.1, 0.05, 0.1, 0.2, 0.4, 0.8];
const POPULARITIES_ALONE: [f32; 6] = [1e-6, 0.001, 0.003, 0.01, 0.03, 0.1];
/// What is chosen on most data, or near it; taken where there is no validation part to choose on.
const USUAL_WEIGHT: f32 = 16.0;
const USUAL_PENALTY: f32 = 30.0;
/// Standard errors of the paired difference that a part must gain to be taken: one where it costs little, two where it costs
/// much, or is one of many that were tried.
const ERRORS_OF_LITTLE: f64 = 1.0;
const ERRORS_OF_MUCH: f64 = 2.0;
/// Users whose lists are ranked together.
const BLOCK: usize = 16;

/// The neighbours that are tried in a catalogue of `n_items`, each with its penalties: what is given, or some.
pub(crate) fn grid(ridge: &Ridge, n_items: usize) -> Vec<(usize, Vec<f32>)> {
    let penalties = match ridge.penalty {
        Some(given) => vec![given],
        None if n_items <= FEW_ITEMS => PENALTIES.into_iter().chain([LARGE_PENALTY]).collect(),
        None => PENALTIES.to_vec(),
    };
    let nearest = ridge.neighbours_for(n_items);
    let all = n_items.max(2) - 1;
    match ridge.neighbours == 0 && all > nearest && n_items <= FEW_ENOUGH_FOR_ALL {
        true => vec![(nearest, penalties.clone()), (all, penalties)],
        false => vec![(nearest, penalties)],
    }
}

/// A network, what it learned from, and the part that it is measured on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trained<'t> {
    pub network: Network<'t>,
    pub train: &'t Interactions,
    pub part: &'t Interactions,
}

/// One way to add up the parts.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Candidate {
    /// Which of the solved linear parts.
    ridge: usize,
    network: bool,
    weight: f32,
    popularity: f32,
}

/// What was chosen, before the linear part is solved on everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Chosen {
    /// None where the network stands alone.
    pub blend: Option<Blend>,
    /// Epochs of a training on everything, where more than one training has chosen them.
    pub epochs: Option<usize>,
}

impl Chosen {
    /// What scores beside the network, or in its place, solved on `data`; None where the network stands alone.
    pub(super) fn solved(&self, data: &Interactions) -> Result<Option<Solved>> {
        let Some(blend) = &self.blend else { return Ok(None) };
        if !blend.without_network {
            return Ok(Some(Solved::Beside(Linear::solved(blend, data))));
        }
        let settings = match blend.weight {
            0.0 => baseline::Settings::Popularity,
            _ => baseline::Settings::ItemRidge(ItemRidgeSettings {
                neighbours: blend.neighbours,
                penalty: blend.penalty,
                power: blend.power,
                popularity: blend.popularity,
            }),
        };
        let (method, settings) = baseline::learn(data, &settings, &mut |_| Control::Continue)?;
        Ok(Some(Solved::Alone(method, settings)))
    }

    /// As [`Chosen::solved`], where the linear part of `data` is there.
    pub(super) fn solved_already(
        &self,
        data: &Interactions,
        weights: Option<ItemWeights>,
    ) -> Result<Option<Solved>> {
        match &self.blend {
            Some(blend) if !blend.without_network && weights.is_some() => {
                let weights = weights.filter(|_| blend.weight != 0.0);
                Ok(Some(Solved::Beside(Linear::of(blend, weights, &data.item_counts()))))
            }
            _ => self.solved(data),
        }
    }
}

/// What was chosen, solved.
#[derive(Debug)]
pub(super) enum Solved {
    /// It stands beside the network.
    Beside(Linear),
    /// It is better without the network.
    Alone(Box<dyn Method>, baseline::Settings),
}

/// What is asked for where nothing can be chosen: no validation part, or all weights given.
pub(super) fn unchosen(config: &Config, n_items: usize) -> Option<Blend> {
    let ridge = &config.ridge;
    let (weight, popularity) = (ridge.weight.unwrap_or(USUAL_WEIGHT), ridge.popularity.unwrap_or(0.0));
    let penalty = ridge.penalty.unwrap_or(USUAL_PENALTY);
    let blend = Blend::new(weight, popularity, ridge.neighbours_for(n_items), penalty, ridge.power);
    (weight != 0.0 || popularity != 0.0).then_some(blend)
}

/// Chooses by all of `trained` together; and the linear part that was chosen, of the first of them.
pub(super) fn choose(trained: &[Trained<'_>], config: &Config) -> Result<(Chosen, Option<ItemWeights>)> {
    let ridge = &config.ridge;
    let n_items = trained[0].train.n_items();
    // The pure network was asked for.
    if ridge.weight == Some(0.0) {
        let blend = unchosen(config, n_items);
        return Ok((Chosen { blend, ..Chosen::default() }, None));
    }
    let grid = grid(ridge, n_items);
    let linears: Vec<(usize, f32)> =
        grid.iter().flat_map(|(n, penalties)| penalties.iter().map(|&penalty| (*n, penalty))).collect();
    let solved = |trained: &Trained<'_>| -> Vec<ItemWeights> {
        let counts = CoCounts::of(trained.train, ridge.power);
        grid.iter().flat_map(|(neighbours, penalties)| solve(&counts, *neighbours, penalties)).collect()
    };
    let mut trials: Vec<Trial<'_>> =
        trained.iter().map(|trained| Trial::of(*trained, solved(trained))).collect();
    let measure = |candidates: &[Candidate]| Trial::measure_all(&trials, candidates);
    let measure = &measure;
    let (network, network_alone) = with_network(ridge, &linears, measure)?;
    let given = ridge.weight.is_some() || ridge.popularity.is_some();
    let alone = if given { None } else { Some(without_network(linears.len(), measure)?) };
    let left_out = alone.as_ref().filter(|alone| !network.is_beyond_noise_of(alone, ERRORS_OF_MUCH));
    let best = left_out.unwrap_or(&network).candidate;

    let mut chosen = Chosen::default();
    if best.weight != 0.0 || best.popularity != 0.0 {
        let (neighbours, penalty) = linears[best.ridge];
        let mut blend = Blend::new(best.weight, best.popularity, neighbours, penalty, ridge.power);
        blend.without_network = left_out.is_some();
        blend.trainings = trials.len();
        blend.together = Some(network.mean());
        blend.network_alone = network_alone;
        blend.linear_alone = alone.as_ref().map(Measured::mean);
        chosen.blend = Some(blend);
    }
    let weights = chosen.blend.map(|_| trials.swap_remove(0).solved.swap_remove(best.ridge));
    Ok((chosen, weights))
}

/// A candidate with the metric of each user.
#[derive(Debug, Clone)]
struct Measured {
    candidate: Candidate,
    values: Vec<f64>,
}

impl Measured {
    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len().max(1) as f64
    }

    /// Whether it is better than `other` by more than so many standard errors of the difference, user by user.
    fn is_beyond_noise_of(&self, other: &Self, errors: f64) -> bool {
        let difference = PairedDifference::of(&self.values, &other.values);
        difference.mean > errors * difference.standard_error
    }

    /// The largest mean, the first of equals.
    fn best(all: Vec<Self>) -> Self {
        let larger = |best: Self, next: Self| if next.mean() > best.mean() { next } else { best };
        all.into_iter().reduce(larger).expect("something is always tried")
    }
}

/// The best of the network and one of the linear parts, and the mean of the network alone, where that was tried. Popularity is
/// added where it gains more than noise.
///
/// Of those that are as good as the best but for noise, the nearest to what is usual is taken: the largest of many noisy values is
/// further off.
fn with_network(
    ridge: &Ridge,
    linears: &[(usize, f32)],
    measure: impl Fn(&[Candidate]) -> Result<Vec<Measured>>,
) -> Result<(Measured, Option<f64>)> {
    let popularity = ridge.popularity.unwrap_or(0.0);
    let weights = ridge.weight.map_or(WEIGHTS.to_vec(), |weight| vec![weight]);
    let with = |ridge, weight| Candidate { ridge, network: true, weight, popularity };
    let candidates: Vec<Candidate> = (0..linears.len())
        .flat_map(|linear| weights.iter().map(move |&weight| with(linear, weight)))
        .collect();
    let measured = measure(&candidates)?;
    let alone = measured.iter().find(|measured| measured.candidate.weight == 0.0).map(Measured::mean);
    let unusual = |measured: &Measured| {
        let Candidate { ridge, weight, .. } = measured.candidate;
        (weight / USUAL_WEIGHT).ln().powi(2) + (linears[ridge].1 / USUAL_PENALTY).ln().powi(2)
    };
    let best = Measured::best(measured.clone());
    let as_good = measured.into_iter().filter(|other| !best.is_beyond_noise_of(other, ERRORS_OF_LITTLE));
    let best = as_good.min_by(|a, b| unusual(a).total_cmp(&unusual(b))).unwrap_or(best);
    if ridge.popularity.is_some() {
        return Ok((best, alone));
    }
    let candidates = POPULARITIES.map(|popularity| Candidate { popularity, ..best.candidate });
    let popular = Measured::best(measure(&candidates)?);
    Ok((if popular.is_beyond_noise_of(&best, ERRORS_OF_MUCH) { popular } else { best }, alone))
}

/// Popularity, or the best of the linear parts where that is better than noise.
fn without_network(
    n_linears: usize,
    measure: impl Fn(&[Candidate]) -> Result<Vec<Measured>>,
) -> Result<Measured> {
    let popular = Candidate { ridge: 0, network: false, weight: 0.0, popularity: 1.0 };
    let popular = Measured::best(measure(&[popular])?);
    let alone = |ridge, popularity| Candidate { ridge, network: false, weight: 1.0, popularity };
    let candidates: Vec<Candidate> = (0..n_linears)
        .flat_map(|linear| POPULARITIES_ALONE.map(|popularity| alone(linear, popularity)))
        .collect();
    let linear = Measured::best(measure(&candidates)?);
    Ok(if linear.is_beyond_noise_of(&popular, ERRORS_OF_LITTLE) { linear } else { popular })
}

/// Seconds that choosing and solving take on the current thread pool, from what some items take.
pub fn estimated_seconds(config: &Config, data: &Interactions) -> f64 {
    let ridge = &config.ridge;
    if ridge.weight == Some(0.0) {
        return 0.0;
    }
    let clock = Instant::now();
    let counts = CoCounts::of(data, ridge.power);
    let counting = clock.elapsed().as_secs_f64();
    let nearest = ridge.neighbours_for(data.n_items());
    let (rows, solution) = seconds_of_an_item(&counts, nearest);
    let (rows, solution) = (rows * data.n_items() as f64, solution * data.n_items() as f64);
    let solutions = grid(ridge, data.n_items()).iter().map(|(_, penalties)| penalties.len()).sum::<usize>();
    // Once to choose, and once on everything; each counts the rows twice.
    2.0 * (counting + 2.0 * rows) + (solutions + 1) as f64 * solution
}

/// The users that candidates are measured on, with the parts that are added up.
struct Trial<'t> {
    of: Trained<'t>,
    /// For each penalty.
    solved: Vec<ItemWeights>,
    users: Vec<usize>,
    log_counts: Vec<f32>,
    yardstick: Yardstick,
}

impl<'t> Trial<'t> {
    fn of(of: Trained<'t>, solved: Vec<ItemWeights>) -> Self {
        let users = (0..of.part.n_users()).filter(|&user| !of.part.row(user).items.is_empty()).collect();
        let log_counts = of.train.item_counts().iter().map(|&count| (count as f32).ln_1p()).collect();
        let yardstick = Yardstick::new(&[VALIDATION_METRIC], of.train.n_items());
        Self { of, solved, users, log_counts, yardstick }
    }

    /// For each candidate, the metric of each user of each trial.
    fn measure_all(trials: &[Self], candidates: &[Candidate]) -> Result<Vec<Measured>> {
        let nothing = |&candidate: &Candidate| Measured { candidate, values: Vec::new() };
        let mut all: Vec<Measured> = candidates.iter().map(nothing).collect();
        for trial in trials {
            all.iter_mut()
                .zip(trial.measure(candidates)?)
                .for_each(|(all, values)| all.values.extend(values));
        }
        Ok(all)
    }

    /// For each candidate, the metric of each user.
    fn measure(&self, candidates: &[Candidate]) -> Result<Vec<Vec<f64>>> {
        let blocks: Result<Vec<Vec<Vec<f64>>>> =
            self.users.par_chunks(BLOCK).map(|users| self.measure_block(users, candidates)).collect();
        let mut all = vec![Vec::with_capacity(self.users.len()); candidates.len()];
        for user in blocks?.into_iter().flatten() {
            all.iter_mut().zip(user).for_each(|(all, value)| all.push(value));
        }
        Ok(all)
    }

    fn measure_block(&self, users: &[usize], candidates: &[Candidate]) -> Result<Vec<Vec<f64>>> {
        let viewers: Vec<Viewer<'_>> = users.iter().map(|&user| self.of.train.row(user).into()).collect();
        let scores = self.of.network.block(&viewers)?;
        let (queries, table) = scores.products.as_ref().expect("a network scores by products");
        let mut yardstick = self.yardstick.clone();
        let mut logits = vec![0.0; self.of.train.n_items()];
        let mut measured = Vec::with_capacity(users.len());
        for (at, &user) in users.iter().enumerate() {
            crate::eval::scan::logits(*table, queries.view().row(at), 0, &mut logits);
            let test = self.of.part.row(user).items;
            let mut values = vec![0.0; candidates.len()];
            let mut done: Vec<Candidate> = Vec::new();
            for &first in candidates {
                // Those that differ in the linear part's weight alone share what is best without it.
                let same = |other: &Candidate| Candidate { weight: first.weight, ..*other } == first;
                if done.iter().any(same) {
                    continue;
                }
                done.push(first);
                let rank = Ranked::of(self, viewers[at], first, &logits);
                for (value, candidate) in values.iter_mut().zip(candidates).filter(|(_, c)| same(c)) {
                    let ranked = rank.with_weight(candidate.weight);
                    *value =
                        yardstick.values(ranked.iter().map(|scored| scored.item), test).next().unwrap_or(0.0);
                }
            }
            measured.push(values);
        }
        Ok(measured)
    }
}

/// A user's best items without the linear part, and the items that it adds to.
struct Ranked {
    others: Vec<Scored>,
    /// Items with their scores and what the linear part says of them.
    spoken_for: Vec<(Scored, f32)>,
}

impl Ranked {
    fn of(trial: &Trial<'_>, viewer: Viewer<'_>, candidate: Candidate, logits: &[f32]) -> Self {
        let history = viewer.history;
        let mut scores: Vec<f32> = trial.log_counts.iter().map(|log| candidate.popularity * log).collect();
        if candidate.network {
            scores.iter_mut().zip(logits).for_each(|(score, logit)| *score += logit);
        }
        let few = trial.solved[candidate.ridge].spoken_for(history.items, item_value(history), 1.0);
        let seen = |item: ItemId| history.items.binary_search(&item).is_ok();
        let score = |item: ItemId| scores[item as usize];
        let spoken_for: Vec<(Scored, f32)> = few
            .iter()
            .filter(|few| !seen(few.item))
            .map(|few| (Scored { item: few.item, score: score(few.item) }, few.score))
            .collect();
        history.items.iter().for_each(|&item| scores[item as usize] = f32::NEG_INFINITY);
        few.iter().for_each(|few| scores[few.item as usize] = f32::NEG_INFINITY);
        let mut top = TopK::default();
        top.reset(VALIDATION_METRIC.k.min(scores.len()));
        top.offer(0, &scores);
        let mut others = Vec::new();
        top.drain_into(&mut others);
        Self { others, spoken_for }
    }

    fn with_weight(&self, weight: f32) -> Vec<Scored> {
        let spoken =
            |&(Scored { item, score }, few): &(Scored, f32)| Scored { item, score: score + weight * few };
        let mut all: Vec<Scored> =
            self.spoken_for.iter().map(spoken).chain(self.others.iter().copied()).collect();
        let order = |a: &Scored, b: &Scored| b.score.total_cmp(&a.score).then(a.item.cmp(&b.item));
        let k = VALIDATION_METRIC.k;
        if all.len() > k {
            all.select_nth_unstable_by(k, order);
            all.truncate(k);
        }
        all.sort_unstable_by(order);
        all
    }
}
