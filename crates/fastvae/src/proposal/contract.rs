//! One contract for every proposal, and the theorems of the paper.

use super::*;
use crate::config::Quantizer;
use crate::math::{Matrix, Purpose};

/// A random decoder and query.
struct World {
    vectors: Matrix,
    bias: Option<Vec<f32>>,
    counts: Vec<u32>,
    query: Vec<f32>,
}

impl World {
    fn new(n_items: usize, dim: usize, scale: f64, with_bias: bool, seed: u64) -> Self {
        let mut stream = Stream::new(seed, Purpose::Generate, 0, 0);
        let mut normals =
            |n: usize, scale: f64| -> Vec<f32> { (0..n).map(|_| (stream.normal() * scale) as f32).collect() };
        let vectors = Matrix::from_rows(n_items, dim, &normals(n_items * dim, scale / (dim as f64).sqrt()));
        let bias = with_bias.then(|| normals(n_items, 0.7));
        let query = normals(dim, 1.0);
        let counts = (0..n_items as u32).map(|i| (i % 97) * (i % 97) % 97).collect();
        Self { vectors, bias, counts, query }
    }

    fn items(&self) -> ItemTable<'_> {
        ItemTable { vectors: self.vectors.view(), bias: self.bias.as_deref() }
    }

    fn config(&self, kind: ProposalKind) -> Config {
        let latent = self.vectors.cols();
        Config { proposal: kind, latent, codewords: 5, codebooks: 2, ..Config::default() }
    }

    fn proposal(&self, config: &Config) -> Box<dyn Proposal> {
        let mut proposal = build(config, &self.counts).unwrap();
        proposal.refresh(self.items(), 1, 0).unwrap();
        proposal
    }

    fn log_q(&self, proposal: &dyn Proposal) -> Vec<f32> {
        let mut scratch = Scratch::default();
        proposal.prepare(&self.query, self.items(), &mut scratch);
        let all: Vec<u32> = (0..self.counts.len() as u32).collect();
        let mut log_q = vec![0.0; all.len()];
        proposal.log_q(&all, &self.query, self.items(), &mut scratch, &mut log_q);
        log_q
    }

    fn draws(&self, proposal: &dyn Proposal, n: usize, entity: u32) -> Draws {
        let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
        proposal.prepare(&self.query, self.items(), &mut scratch);
        let stream = Stream::new(9, Purpose::Negatives, 0, entity);
        proposal.draw(n, &self.query, self.items(), &stream, &mut scratch, &mut draws);
        draws
    }

    /// KL(Q of `kind` || softmax).
    fn divergence(&self, config: &Config) -> f64 {
        let softmax =
            self.log_q(&*self.proposal(&Config { proposal: ProposalKind::Softmax, ..config.clone() }));
        let log_q = self.log_q(&*self.proposal(config));
        log_q.iter().zip(softmax).map(|(q, p)| f64::from(*q).exp() * f64::from(q - p)).sum()
    }
}

const KINDS: [ProposalKind; 8] = [
    ProposalKind::Uniform,
    ProposalKind::Popularity,
    ProposalKind::Softmax,
    ProposalKind::Kernel,
    ProposalKind::Dns,
    ProposalKind::MidxExact,
    ProposalKind::MidxUniform,
    ProposalKind::MidxPopularity,
];

fn has_index(kind: ProposalKind) -> bool {
    matches!(kind, ProposalKind::MidxExact | ProposalKind::MidxUniform | ProposalKind::MidxPopularity)
}

/// Every kind, and every shape of index for those that have one: m = 1 to 4, both quantisers, and a K beyond
/// the grid of cells.
fn configurations(world: &World) -> Vec<Config> {
    let mut configs = Vec::new();
    for kind in KINDS {
        let config = world.config(kind);
        if !has_index(kind) {
            configs.push(config);
            continue;
        }
        for quantizer in [Quantizer::Product, Quantizer::Residual] {
            for codebooks in 1..=4 {
                configs.push(Config { quantizer, codebooks, ..config.clone() });
            }
        }
        for codewords in [1, 17, 70] {
            configs.push(Config { codewords, ..config.clone() });
        }
    }
    configs
}

/// Runs `check` for every proposal with and without item biases.
fn for_all(check: impl Fn(&World, &Config, &dyn Proposal)) {
    for with_bias in [false, true] {
        let world = World::new(211, 12, 2.0, with_bias, 5);
        for config in configurations(&world) {
            check(&world, &config, &*world.proposal(&config));
        }
    }
}

fn label(config: &Config) -> String {
    let Config { proposal, quantizer, codebooks, codewords, .. } = config;
    format!("{proposal:?} {quantizer:?} m={codebooks} K={codewords}")
}

#[test]
fn probabilities_sum_to_one() {
    for_all(|world, config, proposal| {
        let sum: f64 = world.log_q(proposal).iter().map(|&l| f64::from(l).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-4, "{}: {sum}", label(config));
    });
}

/// A chi-square test of `calls` times `n` draws against the proposal's own probabilities.
fn assert_draws_follow(world: &World, config: &Config, proposal: &dyn Proposal, calls: u32, n: usize) {
    let log_q = world.log_q(proposal);
    let mut counts = vec![0.0; log_q.len()];
    for call in 0..calls {
        world.draws(proposal, n, call).items.iter().for_each(|&item| counts[item as usize] += 1.0);
    }
    // Items expected fewer than ten times share one bin.
    let (mut statistic, mut bins, mut rest) = (0.0, 0, (0.0, 0.0));
    let mut add = |count: f64, expected: f64| {
        statistic += (count - expected).powi(2) / expected;
        bins += 1;
    };
    for (count, &log_q) in counts.iter().zip(&log_q) {
        let expected = f64::from(log_q).exp() * f64::from(calls) * n as f64;
        if expected < 10.0 {
            rest = (rest.0 + count, rest.1 + expected);
        } else {
            add(*count, expected);
        }
    }
    if rest.1 >= 10.0 {
        add(rest.0, rest.1);
    }
    // A chi-square of k degrees has mean k and variance 2k; five standard deviations.
    let degrees = f64::from(bins) - 1.0;
    let limit = degrees + 5.0 * (2.0 * degrees.max(1.0)).sqrt();
    assert!(statistic <= limit, "{}: {statistic} with {degrees} degrees", label(config));
}

#[test]
fn draws_follow_the_probabilities() {
    // Several calls, so that draws of one call that hang together would show.
    for_all(|world, config, proposal| assert_draws_follow(world, config, proposal, 100, 300));
}

#[test]
fn cells_too_large_for_one_random_word_are_drawn_from_rightly() {
    let world = World::new(alias::ONE_WORD as usize + 900, 4, 1.0, false, 6);
    let config = Config { codewords: 1, ..world.config(ProposalKind::MidxPopularity) };
    assert_draws_follow(&world, &config, &*world.proposal(&config), 100, 1000);
}

#[test]
fn draws_come_partition_by_partition() {
    let world = World::new(700, 12, 2.0, true, 5);
    for config in configurations(&world) {
        let proposal = world.proposal(&config);
        let partitions = proposal.partitions();
        assert!(!partitions.is_empty() && partitions.starts()[partitions.len()] == 700);
        let draws = world.draws(&*proposal, 500, 1);
        let mut end = 0;
        for partition in 0..partitions.len() {
            let start = end;
            end += draws.spread.total(partition).draws;
            for t in start..end {
                assert!(partitions.range(partition).contains(&draws.places[t]), "{}", label(&config));
                assert_eq!(partitions.item(draws.places[t]), draws.items[t], "{}", label(&config));
            }
        }
        assert_eq!(end, 500, "{}", label(&config));
    }
}

#[test]
fn the_correction_of_a_draw_is_the_one_asked_for_that_item() {
    for_all(|world, config, proposal| {
        let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
        proposal.prepare(&world.query, world.items(), &mut scratch);
        // Draws and questions mix freely after one preparation.
        for entity in 0..3 {
            let stream = Stream::new(2, Purpose::Negatives, 1, entity);
            proposal.draw(200, &world.query, world.items(), &stream, &mut scratch, &mut draws);
            let mut asked = vec![f32::NAN; 200];
            proposal.correction(&draws.items, &world.query, world.items(), &mut scratch, &mut asked);
            for (given, asked) in draws.correction.iter().zip(&asked) {
                assert!((given - asked).abs() < 1e-5, "{}: {given} against {asked}", label(config));
            }
            if config.proposal == ProposalKind::Dns {
                assert!(asked.iter().all(|&constant| constant == 0.0));
            }
            let (mut places, mut located) = (vec![u32::MAX; 200], vec![f32::NAN; 200]);
            let items = (&draws.items[..], &world.query[..]);
            proposal.locate(items.0, items.1, world.items(), &mut scratch, &mut places, &mut located);
            assert_eq!((&places, &located), (&draws.places, &asked), "{}", label(config));
        }
    });
}

#[test]
fn a_restored_proposal_draws_the_same_bit_for_bit() {
    for_all(|world, config, proposal| {
        let mut restored = build(config, &world.counts).unwrap();
        restored.restore(proposal.state()).unwrap();
        let (before, after) = (world.draws(proposal, 100, 0), world.draws(&*restored, 100, 0));
        assert_eq!(before.items, after.items, "{}", label(config));
        assert_eq!(before.correction, after.correction, "{}", label(config));
        assert_eq!(world.log_q(proposal), world.log_q(&*restored));
    });
}

#[test]
fn a_state_that_does_not_fit_is_refused() {
    for_all(|world, config, proposal| {
        let refused = |change: &dyn Fn(&mut State)| {
            let mut state = proposal.state();
            change(&mut state);
            build(config, &world.counts).unwrap().restore(state).is_err()
        };
        assert!(refused(&|state| state.push(("other".into(), StateTensor::u8([0], vec![])))));
        if proposal.state().is_empty() {
            return;
        }
        assert!(refused(&|state| drop(state.remove(0))), "{}", label(config));
        assert!(refused(&|state| state[0].1.shape[0] += 1));
        assert!(refused(&|state| state[0].1.data = StateData::U32(vec![0; 7])));
        assert!(refused(&|state| {
            let StateData::F32(values) = &mut state[0].1.data else { panic!("codewords or sums") };
            values[0] = f32::NAN;
        }));
        if has_index(config.proposal) {
            assert!(refused(&|state| {
                let codes = state.iter_mut().find(|(name, _)| name == "codes").unwrap();
                let StateData::U8(codes) = &mut codes.1.data else { panic!("codes are bytes") };
                codes[3] = 255;
            }));
        }
    });
}

#[test]
fn draws_do_not_depend_on_the_number_of_threads() {
    let world = World::new(2500, 12, 2.0, true, 8);
    for config in configurations(&world) {
        let at = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let draws = world.draws(&*world.proposal(&config), 300, 4);
                (draws.items, draws.correction)
            })
        };
        let one = at(1);
        assert!(one == at(2) && one == at(5), "{}", label(&config));
    }
}

#[test]
fn one_draw_and_one_item_and_one_codeword_work() {
    let world = World::new(1, 3, 1.0, true, 1);
    for kind in KINDS {
        let proposal = world.proposal(&Config { codewords: 1, ..world.config(kind) });
        assert!(world.log_q(&*proposal)[0].abs() < 1e-5, "{kind:?}");
        for n in [0, 1, 2, 17] {
            assert_eq!(world.draws(&*proposal, n, 0).items, vec![0; n], "{kind:?}");
        }
    }
}

#[test]
fn huge_logits_stay_finite() {
    for scale in [100.0, 400.0] {
        let world = World::new(150, 8, scale, true, 3);
        for config in configurations(&world) {
            let proposal = world.proposal(&config);
            let log_q = world.log_q(&*proposal);
            assert!(log_q.iter().all(|l| l.is_finite() && *l < 1e-3), "{}", label(&config));
            let sum: f64 = log_q.iter().map(|&l| f64::from(l).exp()).sum();
            // Logits of some hundreds carry an error of 1e-4 in f32 themselves.
            assert!((sum - 1.0).abs() < 1e-3, "{} at {scale}: {sum}", label(&config));
            let draws = world.draws(&*proposal, 50, 0);
            assert!(draws.correction.iter().all(|l| l.is_finite()));
            // What is drawn is likely: e^-40 never comes up in fifty draws.
            assert!(draws.items.iter().all(|&item| log_q[item as usize] > -40.0), "{}", label(&config));
        }
    }
}

#[test]
fn vectors_that_are_not_numbers_still_leave_valid_items() {
    let mut world = World::new(60, 8, 1.0, false, 3);
    for kind in KINDS {
        let proposal = world.proposal(&world.config(kind));
        world.query[2] = f32::NAN;
        assert!(world.draws(&*proposal, 40, 0).items.iter().all(|&item| item < 60), "{kind:?}");
        world.query[2] = 0.5;
    }
}

#[test]
fn midx_exact_equals_the_softmax() {
    for seed in 0..5 {
        let world = World::new(300, 10, 2.0, seed % 2 == 0, seed);
        let softmax = world.log_q(&*world.proposal(&world.config(ProposalKind::Softmax)));
        for config in configurations(&world).iter().filter(|c| c.proposal == ProposalKind::MidxExact) {
            let exact = world.log_q(&*world.proposal(config));
            for (exact, softmax) in exact.iter().zip(&softmax) {
                assert!((exact - softmax).abs() < 1e-5, "{}: {exact} against {softmax}", label(config));
            }
        }
    }
}

#[test]
fn midx_exact_follows_vectors_newer_than_the_index() {
    let old = World::new(300, 10, 2.0, true, 1);
    let proposal = old.proposal(&old.config(ProposalKind::MidxExact));
    let new = World::new(300, 10, 2.0, true, 2);
    let softmax = new.log_q(&*new.proposal(&new.config(ProposalKind::Softmax)));
    assert!(new.log_q(&*proposal).iter().zip(softmax).all(|(a, b)| (a - b).abs() < 2e-5));
}

#[test]
fn the_kernel_stays_a_distribution_under_vectors_newer_than_its_tree() {
    let old = World::new(300, 10, 2.0, false, 1);
    let proposal = old.proposal(&old.config(ProposalKind::Kernel));
    let new = World::new(300, 10, 2.0, false, 2);
    let sum: f64 = new.log_q(&*proposal).iter().map(|&l| f64::from(l).exp()).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{sum}");
}

/// Theorems 5.1 and 5.2: Q(i) = w_i exp(z . (q_i - residual_i)) / the sum of these.
#[test]
fn midx_has_the_closed_form_of_the_theorems() {
    for with_bias in [false, true] {
        let world = World::new(200, 9, 2.0, with_bias, 4);
        for config in configurations(&world) {
            let by_popularity = config.proposal == ProposalKind::MidxPopularity;
            if !by_popularity && config.proposal != ProposalKind::MidxUniform {
                continue;
            }
            let proposal = world.proposal(&config);
            let index = proposal.index().unwrap();
            let mut residual = vec![0.0; 9];
            let logits: Vec<f64> = (0..200u32)
                .map(|item| {
                    index.residual(item, world.vectors.view(), &mut residual);
                    let vector = world.vectors.row(item as usize);
                    let dot: f32 = (0..9).map(|d| world.query[d] * (vector[d] - residual[d])).sum();
                    let count = world.counts[item as usize];
                    let log_pop = if by_popularity { config.popularity.weight(count).ln() } else { 0.0 };
                    f64::from(dot + log_pop + world.bias.as_ref().map_or(0.0, |bias| bias[item as usize]))
                })
                .collect();
            let log_z = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
            for (logit, log_q) in logits.iter().zip(world.log_q(&*proposal)) {
                assert!((logit - log_z - f64::from(log_q)).abs() < 1e-4, "{}", label(&config));
            }
        }
    }
}

/// Theorems 5.3 and 5.4: KL(Q || softmax) <= 2 C |z|, and ln(max pop / min pop) more by popularity.
#[test]
fn divergences_stay_below_the_bounds_of_the_theorems() {
    for seed in 0..6 {
        let world = World::new(400, 8, 0.5 + seed as f64, false, seed);
        for config in configurations(&world) {
            let weights: Vec<f32> = world.counts.iter().map(|&c| config.popularity.weight(c)).collect();
            let spread =
                weights.iter().copied().fold(0.0, f32::max) / weights.iter().copied().fold(1e9, f32::min);
            let extra = match config.proposal {
                ProposalKind::MidxUniform => 0.0,
                ProposalKind::MidxPopularity => f64::from(spread.ln()),
                _ => continue,
            };
            let proposal = world.proposal(&config);
            let largest = f64::from(proposal.index().unwrap().largest_residual(world.vectors.view()));
            let norm = f64::from(world.query.iter().map(|z| z * z).sum::<f32>().sqrt());
            let divergence = world.divergence(&config);
            assert!(divergence > -1e-5 && divergence <= 2.0 * largest * norm + extra, "{}", label(&config));
        }
    }
}

#[test]
fn residual_quantisation_diverges_less_than_product_quantisation() {
    let mean = |quantizer| -> f64 {
        (0..10)
            .map(|seed| {
                let world = World::new(1000, 8, 2.0, false, 100 + seed);
                let config = world.config(ProposalKind::MidxUniform);
                world.divergence(&Config { quantizer, codewords: 16, ..config })
            })
            .sum()
    };
    let (residual, product) = (mean(Quantizer::Residual), mean(Quantizer::Product));

    assert!(residual < product, "{residual} against {product}");
}

#[test]
fn the_cells_that_midx_draws_from_come_in_order() {
    let world = World::new(500, 8, 1.0, false, 2);
    let proposal = world.proposal(&world.config(ProposalKind::MidxPopularity));
    let cells = proposal.index().unwrap().lists().cell_of();
    let draws = world.draws(&*proposal, 1000, 0);
    assert!(draws.items.windows(2).all(|pair| cells[pair[0] as usize] <= cells[pair[1] as usize]));
}

#[test]
fn more_codewords_than_items_are_refused() {
    let world = World::new(4, 3, 1.0, false, 1);
    for kind in KINDS.into_iter().filter(|&kind| has_index(kind)) {
        let error = build(&world.config(kind), &world.counts).unwrap_err();
        assert!(error.to_string().contains("codewords"), "{error}");
    }
    assert!(build(&world.config(ProposalKind::Uniform), &[]).is_err());
}
