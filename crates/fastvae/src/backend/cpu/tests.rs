//! A step against an oracle: the whole loss in f64, one scalar at a time, and its finite differences.

use super::*;
use crate::config::{Activation, Estimator, Kl, MomentKind, ProposalKind};
use crate::data::{IdMap, ItemId};
use crate::math::{Purpose, Stream, simd};
use crate::proposal::{Draws, Scratch};

const N_ITEMS: usize = 60;

fn interactions(weighted: bool) -> Arc<Interactions> {
    let mut stream = Stream::new(2, Purpose::Generate, 0, 0);
    let (mut offsets, mut items) = (vec![0], Vec::new());
    for _ in 0..70 {
        let mut row: Vec<u32> =
            (0..2 + stream.below(9)).map(|_| stream.below(N_ITEMS as u64) as u32).collect();
        row.sort_unstable();
        row.dedup();
        items.extend(row);
        offsets.push(items.len());
    }
    let weights = weighted.then(|| items.iter().map(|i| 0.5 + (i % 3) as f32).collect());
    let ids = |n| Arc::new(IdMap::range(n));
    Arc::new(Interactions::from_parts(offsets, items, weights, None, ids(70), ids(N_ITEMS)).unwrap())
}

fn config(model: ModelKind) -> Config {
    Config {
        model,
        hidden: 12,
        latent: 6,
        negatives: 9,
        codewords: 3,
        latent_samples: 2,
        item_bias: true,
        weight_decay: 0.0,
        batch: 64,
        kl: Kl { beta: None, gamma: Some(0.3), anneal_steps: 20 },
        ..Config::default()
    }
}

/// Dropout, noise and negatives of every user and draw, fixed as the step will see them.
struct Fixed {
    kept: Vec<Vec<bool>>,
    noise: Vec<Vec<Vec<f32>>>,
    draws: Vec<Vec<Draws>>,
    corrections: Vec<Vec<Vec<f32>>>,
}

/// Mean and log-variance of one user.
fn head(
    config: &Config,
    train: &Interactions,
    p: &Parameters,
    kept: &[bool],
    user: usize,
) -> (Vec<f64>, Vec<f64>) {
    let row = train.row(user);
    let weight = |k: usize| row.weights.map_or(1.0, |w| f64::from(w[k]));
    let norm = (0..row.items.len()).map(|k| weight(k) * weight(k)).sum::<f64>().sqrt();
    let state: Vec<f64> = (0..config.hidden)
        .map(|h| {
            let mut sum = f64::from(p.hidden_bias.row(0)[h]);
            for (k, &item) in row.items.iter().enumerate().filter(|(k, _)| kept[*k]) {
                let columns = p.encoder.row(item as usize);
                let entry = match &p.encoder_map {
                    None => f64::from(columns[h]),
                    Some(map) => {
                        (0..map.rows()).map(|r| f64::from(columns[r]) * f64::from(map.row(r)[h])).sum()
                    }
                };
                sum += weight(k) / norm / (1.0 - f64::from(config.dropout)) * entry;
            }
            match config.activation {
                Activation::Relu => sum.max(0.0),
                Activation::Tanh => sum.tanh(),
            }
        })
        .collect();
    let out = |c: usize| {
        f64::from(p.head_bias.row(0)[c])
            + (0..config.hidden).map(|h| state[h] * f64::from(p.head.row(h)[c])).sum::<f64>()
    };
    ((0..config.latent).map(out).collect(), (config.latent..2 * config.latent).map(out).collect())
}

fn query(config: &Config, mean: &[f64], log_variance: &[f64], noise: &[f32]) -> Vec<f64> {
    (0..config.latent).map(|d| mean[d] + f64::from(noise[d]) * (log_variance[d] / 2.0).exp()).collect()
}

fn log_sum_exp(values: &[f64]) -> f64 {
    let top = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    top + values.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
}

/// `before` is the state before the step that left `queries`: these are taken as they are, since a last bit of difference
/// can change a draw.
fn fix(
    config: &Config,
    train: &Interactions,
    before: &RunState,
    queries: &Matrix,
    users: &[UserId],
    context: StepContext,
) -> Fixed {
    let epoch = context.epoch as u32;
    let mut fixed = Fixed { kept: vec![], noise: vec![], draws: vec![], corrections: vec![] };
    for (u, &user) in users.iter().enumerate() {
        let items = train.row(user as usize).items;
        let mut dropout = Stream::new(config.seed, Purpose::Dropout, epoch, user);
        let threshold = (f64::from(config.dropout) * 2f64.powi(32)) as u32;
        let kept: Vec<bool> = items.iter().map(|_| dropout.next_word() >= threshold).collect();
        let (mean, log_variance) = head(config, train, &before.parameters, &kept, user as usize);
        let (mut noises, mut all_draws, mut corrections) = (vec![], vec![], vec![]);
        for s in 0..config.latent_samples {
            let mut noise = vec![0.0; config.latent];
            simd::fill_normals(
                &Stream::with_part(config.seed, Purpose::Latent, s as u16, epoch, user),
                &mut noise,
            );
            let z = &queries.row(u * config.latent_samples + s)[..config.latent];
            let expected = query(config, &mean, &log_variance, &noise);
            assert!(
                z.iter().zip(&expected).all(|(&z, e)| (f64::from(z) - e).abs() < 1e-5),
                "{z:?} {expected:?}"
            );
            let (mut draws, mut correction, mut scratch) =
                (Draws::default(), vec![0.0; items.len()], Scratch::default());
            if let Some(proposal) = &before.proposal {
                let stream = Stream::with_part(config.seed, Purpose::Negatives, s as u16, epoch, user);
                let table = before.parameters.item_table();
                proposal.prepare(z, table, &mut scratch);
                proposal.draw(config.negatives, z, table, &stream, &mut scratch, &mut draws);
                proposal.correction(items, z, table, &mut scratch, &mut correction);
            }
            noises.push(noise);
            all_draws.push(draws);
            corrections.push(correction);
        }
        fixed.kept.push(kept);
        fixed.noise.push(noises);
        fixed.draws.push(all_draws);
        fixed.corrections.push(corrections);
    }
    fixed
}

/// The loss of a batch, straight from sections 3 and 6 of the paper.
fn oracle(
    config: &Config,
    train: &Interactions,
    p: &Parameters,
    users: &[UserId],
    context: StepContext,
    fixed: &Fixed,
) -> f64 {
    let KlWeight::PerInteraction(gamma) = KlWeight::resolve(&config.kl, 0, 1) else {
        panic!("the tests weigh per interaction")
    };
    let anneal = (context.step as f64 / config.kl.anneal_steps as f64).min(1.0);
    let mut loss = 0.0;
    for (u, &user) in users.iter().enumerate() {
        let row = train.row(user as usize);
        let (mean, log_variance) = head(config, train, p, &fixed.kept[u], user as usize);
        for s in 0..config.latent_samples {
            let z = query(config, &mean, &log_variance, &fixed.noise[u][s]);
            let logit = |item: ItemId| {
                let q = p.items.row(item as usize);
                (0..config.latent).map(|d| z[d] * f64::from(q[d])).sum::<f64>()
                    + f64::from(p.item_bias.as_ref().unwrap().row(0)[item as usize])
            };
            for (k, &item) in row.items.iter().enumerate() {
                let weight = row.weights.map_or(1.0, |w| f64::from(w[k])) / config.latent_samples as f64;
                let draws = &fixed.draws[u][s];
                let drawn = draws.items.iter().zip(&draws.correction).map(|(&j, &c)| logit(j) - f64::from(c));
                let (positive, all): (f64, Vec<f64>) = match (config.model, config.estimator) {
                    (ModelKind::MultVae, _) => (logit(item), (0..N_ITEMS as u32).map(logit).collect()),
                    (ModelKind::FastVae, Estimator::Stratified) => {
                        let share = (config.negatives as f64).ln();
                        let others = draws.items.iter().zip(drawn).filter(|(j, _)| !row.items.contains(j));
                        let others = others.map(|(_, a)| a - share);
                        (logit(item), others.chain(row.items.iter().map(|&i| logit(i))).collect())
                    }
                    (ModelKind::FastVae, Estimator::Sampled) => {
                        let positive = logit(item) - f64::from(fixed.corrections[u][s][k]);
                        (positive, drawn.chain([positive]).collect())
                    }
                };
                loss += weight * (log_sum_exp(&all) - positive);
            }
        }
        let kl: f64 = mean.iter().zip(&log_variance).map(|(m, l)| -0.5 * (1.0 + l - m * m - l.exp())).sum();
        loss += f64::from(gamma) * row.items.len() as f64 * anneal * kl;
    }
    loss
}

/// Runs one step and compares its loss and every table's gradient with the oracle's. The gradient is read off
/// the first moments, which after the first step are a tenth of it.
fn check_step(config: Config, weighted: bool) {
    let train = interactions(weighted);
    let mut backend = CpuBackend::new(&config, train.clone());
    let mut build = || {
        let mut state = RunState::new(&config, &train).unwrap();
        // A user whose items are all dropped would sit exactly on the kink of ReLU.
        state.parameters.hidden_bias.row_mut(0)[..config.hidden].fill(0.05);
        backend.refresh(&mut state, 0).unwrap();
        state
    };
    let (before, mut state) = (build(), build());
    state.order = (3..50).collect();
    let context = StepContext { epoch: 0, step: 7 };
    let report = backend.step(&mut state, 0..47, context).unwrap();
    backend.download(&mut state, Part::Everything).unwrap();
    let users = state.order.clone();
    let fixed = fix(&config, &train, &before, &backend.buffers.queries, &users, context);
    let start = &before.parameters;
    let value = |p: &Parameters| oracle(&config, &train, p, &users, context, &fixed);
    let total = report.likelihood_loss + report.weighted_kl;
    assert!((total / value(start) - 1.0).abs() < 1e-4, "loss {total}, oracle {}", value(start));

    let h = 1e-3;
    let slope = |change: &dyn Fn(&mut Parameters, f32)| {
        let moved = |by: f32| {
            let mut p = start.clone();
            change(&mut p, by);
            value(&p)
        };
        let (left, here, right) = (moved(-h), moved(0.0), moved(h));
        let (left, right) = ((here - left) / f64::from(h), (right - here) / f64::from(h));
        // A hidden unit of some user within h of ReLU's kink: no derivative to compare with.
        let kink = (left - right).abs() > 0.05 * left.abs().max(1.0);
        assert!(!kink || config.activation == Activation::Relu, "only ReLU has kinks: {left} {right}");
        (!kink).then_some((left + right) / 2.0)
    };
    for (table, (name, moments)) in state.moments.as_ref().into_iter().enumerate() {
        let first = &moments.first;
        let mut checked = 0;
        for row in (0..first.rows()).step_by(first.rows().div_ceil(6)) {
            for col in (0..first.cols()).step_by(first.cols().div_ceil(9)) {
                let change = |p: &mut Parameters, by: f32| {
                    let (_, values) = p.as_mut().into_iter().nth(table).expect("as many as moments");
                    values.row_mut(row)[col] += by;
                };
                let Some(expected) = slope(&change) else { continue };
                let got = f64::from(first.row(row)[col]) / 0.1;
                // f32 sums over the batch leave this much.
                assert!(
                    (got - expected).abs() < 0.01 * expected.abs().max(0.5),
                    "{name}[{row}][{col}]: {got}, oracle {expected}"
                );
                checked += usize::from(expected != 0.0);
            }
        }
        assert!(checked > 0, "{name} had gradients to check");
    }
}

#[test]
fn a_sampled_step_has_the_loss_and_gradients_of_the_oracle() {
    let kinds = [
        ProposalKind::Uniform,
        ProposalKind::Popularity,
        ProposalKind::Softmax,
        ProposalKind::Kernel,
        ProposalKind::MidxExact,
        ProposalKind::MidxUniform,
        ProposalKind::MidxPopularity,
    ];
    for proposal in kinds {
        for estimator in [Estimator::Sampled, Estimator::Stratified] {
            check_step(Config { proposal, estimator, ..config(ModelKind::FastVae) }, false);
        }
    }
    let dns =
        Config { proposal: ProposalKind::Dns, estimator: Estimator::Sampled, ..config(ModelKind::FastVae) };
    check_step(dns, false);
    check_step(Config { activation: Activation::Tanh, ..config(ModelKind::FastVae) }, true);
    check_step(Config { encoder_rank: 5, activation: Activation::Tanh, ..config(ModelKind::FastVae) }, true);
}

#[test]
fn a_full_step_has_the_loss_and_gradients_of_the_oracle() {
    check_step(config(ModelKind::MultVae), false);
    check_step(Config { activation: Activation::Tanh, ..config(ModelKind::MultVae) }, true);
    check_step(Config { encoder_rank: 5, activation: Activation::Tanh, ..config(ModelKind::MultVae) }, false);
}

/// Parameters after a few steps at a number of threads.
fn trained(config: &Config, threads: usize) -> Parameters {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let config = Config { threads, ..config.clone() };
        let train = interactions(true);
        let mut state = RunState::new(&config, &train).unwrap();
        let mut backend = CpuBackend::new(&config, train);
        for step in 0..6 {
            if step % 3 == 0 {
                backend.refresh(&mut state, step as usize / 3).unwrap();
            }
            state.order = (0..60).map(|k| (k * 7 + step as u32) % 70).collect();
            backend.step(&mut state, 0..60, StepContext { epoch: step as usize / 3, step }).unwrap();
        }
        backend.download(&mut state, Part::Parameters).unwrap();
        state.parameters
    })
}

#[test]
fn one_two_and_five_threads_give_identical_parameters() {
    let factored = Config { encoder_rank: 5, moments: MomentKind::Compact, ..config(ModelKind::FastVae) };
    for config in [config(ModelKind::FastVae), config(ModelKind::MultVae), factored] {
        let one = trained(&config, 1);
        for threads in [2, 5] {
            let many = trained(&config, threads);
            for (name, (one, many)) in one.as_ref().zip(many.as_ref()) {
                assert_eq!(one.data(), many.data(), "{name}");
            }
        }
    }
}
