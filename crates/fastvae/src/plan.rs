//! What a training run will hold and do, before it starts: arithmetic on sizes, nothing measured.
//!
//! The tables are exact (rows are padded to whole vectors of 16 floats); batch buffers, identifiers and the
//! proposal are estimates for data with an even mix of short and long histories.

use serde::Serialize;

use crate::backend::{ENTRY_BYTES, SORTING_BYTES, device_bytes};
use crate::baseline::item_ridge;
use crate::baseline::item_weights::ItemWeights;
use crate::config::{Config, ModelKind, MomentKind, ProposalKind};
use crate::data::Interactions;
use crate::index::kmeans;
use crate::math::lines::{HUGE_PAGE, table_bytes};
use crate::math::matrix::LANES;
use crate::network::{Shape, Tables};
use crate::optim::Moments;
use crate::proposal::{Partitions, RUN_BYTES};
use crate::train::blend::grid;

/// Bytes of one number.
const FLOAT: u64 = 4;
/// A draw: place and logit.
const DRAW: u64 = 8;
/// How much more lists of entries take than what is in them on average: they grow by doubling, and to the most that any
/// batch has put there.
const GROWTH: f64 = 6.0;
/// As `GROWTH`, of where draws fell, which differs less from batch to batch.
const SPREAD_GROWTH: f64 = 1.5;
/// Integer identifiers that ascend, as most files have them; strings take a few times this.
const ID: u64 = 8;
/// The program itself: code, thread stacks, the allocator's slack.
const PROGRAM: u64 = 14_000_000;
/// Bytes for each row of a file while it is read: pairs as they come and sorted copies (12 to 20 measured).
const READING: u64 = 15;
/// Copies of the dense layer that its products pack and keep for each thread (4 to 5 measured).
const PACKED: u64 = 4;

/// The memory of a training run, part by part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// What is held at the same time.
    pub parts: Vec<MemoryPart>,
    /// What reading the data takes, before anything of `parts` but the interactions is there.
    pub reading_bytes: u64,
    /// What it needs on a GPU, where one trains.
    pub gpu_bytes: u64,
    /// A checkpoint on disk.
    pub checkpoint_bytes: u64,
    /// The model file, without titles and stored users.
    pub model_bytes: u64,
}

/// One thing that a run holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryPart {
    /// What it is.
    pub name: &'static str,
    /// Its size.
    pub bytes: u64,
    /// How the size comes about.
    pub formula: String,
}

/// What one epoch does, apart from validation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EpochCost {
    /// Floating-point operations of the steps.
    pub step_operations: f64,
    /// Bytes that the steps read and write in tables that do not stay in a cache.
    pub step_bytes: f64,
    /// Floating-point operations of the refresh of the proposal, spread over the epochs that it lasts for.
    pub refresh_operations: f64,
    /// Steps.
    pub steps: usize,
}

impl MemoryPlan {
    /// The plan for a run of `config` on data of these sizes.
    ///
    /// With `patience` above 0 the caller is taken to keep the whole training data beside the part that is
    /// trained on, as evaluation needs it.
    pub fn of(config: &Config, n_users: usize, n_items: usize, n_interactions: usize) -> Self {
        let config = &config.for_data(n_users, n_items);
        let (users, items, interactions) = (n_users as u64, n_items as u64, n_interactions as u64);
        let validates = config.patience > 0;
        let hidden = stride(config.hidden);
        let shapes = Tables::<Shape>::of(config, n_items);
        let with_moments = |shape: Shape| shape.bytes() + Moments::bytes_of(shape);
        let formula = |shape: Shape| {
            let (row, moments) = (stride(shape.cols), Moments::sizes(shape)[0].1);
            match shape.moments {
                MomentKind::Full => format!("items x (3 x {row} + 2) x 4"),
                MomentKind::Compact => format!("items x ({row} + {} + 2) x 4", stride(moments)),
            }
        };
        let mut parts = Vec::new();
        let mut add = |name, bytes, formula| parts.push(MemoryPart { name, bytes, formula });
        let copies = if validates { 2 } else { 1 };
        add(
            "interactions",
            copies * Interactions::bytes_of(n_users, n_interactions),
            format!("{copies} x (4 x interactions + 8 x users)"),
        );
        add("identifiers", (users + items) * ID, "about 8 x (users + items); strings take more".to_string());
        let encoder = with_moments(shapes.encoder);
        add("encoder with moments", encoder, formula(shapes.encoder));
        let bias = shapes.item_bias.map_or(0, with_moments);
        let vectors = with_moments(shapes.items) + bias;
        let formula = formula(shapes.items);
        add(
            "item vectors with moments",
            vectors,
            if bias > 0 { format!("{formula} + 3 x items x 4") } else { formula },
        );
        let all: u64 = shapes.into_iter().map(|(_, shape)| with_moments(shape)).sum();
        add(
            "dense layers with moments",
            all - encoder - vectors,
            match config.encoder_rank {
                0 => format!("3 x ({} + 1) x {} x 4", config.hidden, 2 * config.latent),
                rank => {
                    format!("3 x (({} + 1) x {} + {rank} x {hidden}) x 4", config.hidden, 2 * config.latent)
                }
            },
        );
        let packed = config.n_threads() as u64 * config.hidden as u64 * stride(2 * config.latent) * FLOAT;
        add(
            "dense products",
            PACKED * packed,
            format!(
                "about {PACKED} packed copies of {} x {} for each thread",
                config.hidden,
                2 * config.latent
            ),
        );
        if validates {
            add(
                "parameters of the best epoch",
                shapes.into_iter().map(|(_, shape)| shape.bytes()).sum(),
                "encoder, item vectors, dense layers".to_string(),
            );
        }
        add("batch buffers", batch_bytes(config, n_users, n_items, n_interactions), batch_formula(config));
        add("proposal", proposal_bytes(config, n_items), proposal_formula(config));
        let linear = config.ridge.weight != Some(0.0);
        let pair = match validates && config.pair {
            true => shapes.paired().into_iter().map(|(_, shape)| shape.bytes()).sum(),
            false => 0,
        };
        let neighbours = config.ridge.neighbours_for(n_items);
        let solving =
            |neighbours, n_penalties| item_ridge::memory(n_items, n_interactions, neighbours, n_penalties);
        let tried = grid(&config.ridge, n_items);
        let n_penalties = tried.iter().map(|(_, penalties)| penalties.len()).max().unwrap_or_default();
        let choosing = match linear {
            true => tried.iter().map(|(neighbours, penalties)| solving(*neighbours, penalties.len())).sum(),
            false => 0,
        };
        if linear {
            let formula = format!("{neighbours} weights for each item, tried with {n_penalties} penalties");
            add("linear part", choosing, formula);
        }
        // In the end the linear part is solved already.
        let solved = if linear { ItemWeights::bytes_of(n_items, neighbours) } else { 0 };
        if pair + solved > choosing {
            let formula = "twice the parameters in the end, less what the linear part took before";
            add("both networks as one", pair + solved - choosing, formula.to_string());
        }
        let threads = config.n_threads() as u64;
        add(
            "diagnostics, evaluation, saving",
            (diagnostics_bytes(config, items, threads) + users * 8 + items * 4)
                .max(saving_bytes(config, items)),
            "scores of a user for each thread, or a copy of the index".to_string(),
        );
        add("program", PROGRAM, "code, stacks, slack".to_string());
        let stored = |of: fn(Shape) -> u64| shapes.into_iter().map(|(_, shape)| of(shape)).sum::<u64>();
        let parameters = stored(|shape| shape.stored_bytes());
        Self {
            parts,
            gpu_bytes: device_bytes(config, n_users, n_items, n_interactions),
            reading_bytes: PROGRAM / 2 + interactions * READING + (users + items) * ID,
            checkpoint_bytes: parameters * if validates { 2 } else { 1 }
                + stored(Moments::stored_bytes_of)
                + stored_index_bytes(config, items),
            model_bytes: parameters * if validates && config.pair { 2 } else { 1 }
                + items * (FLOAT + ID)
                + stored_index_bytes(config, items)
                + if linear { ItemWeights::bytes_of(n_items, neighbours) } else { 0 },
        }
    }

    /// The most that is held at once.
    pub fn peak_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum::<u64>().max(self.reading_bytes)
    }
}

impl EpochCost {
    /// The cost of an epoch of `config` on data of these sizes.
    pub fn of(config: &Config, n_users: usize, n_items: usize, n_interactions: usize) -> Self {
        let config = &config.for_data(n_users, n_items);
        let (users, items, interactions) = (n_users as f64, n_items as f64, n_interactions as f64);
        let (hidden, latent) = (config.hidden as f64, config.latent as f64);
        let columns = config.encoder_columns() as f64;
        let rank = config.encoder_rank as f64;
        let samples = config.latent_samples as f64;
        let queries = users * samples;
        let kept = interactions * (1.0 - f64::from(config.dropout));
        let steps = n_users.div_ceil(config.batch);
        // Rows that a step touches at least once, if its entries fell evenly: an upper bound for real data.
        let touched = |entries: f64| items * -(-entries / steps.max(1) as f64 / items.max(1.0)).exp_m1();
        let (codewords, codebooks) = (config.codewords as f64, config.codebooks as f64);
        let cells = codewords.powf(codebooks).min(items);
        let interval = config.refresh_interval(n_users, n_items) as f64;
        let index = |n: f64| n * (2.0 * codewords * latent + cells);
        let (draw, targets) = match (config.model, config.proposal) {
            (ModelKind::MultVae, _) => (0.0, queries * items),
            (_, proposal) => {
                let scored = queries * config.negatives as f64 + interactions * samples;
                let draw = match proposal {
                    ProposalKind::Softmax | ProposalKind::MidxExact => queries * items * 2.0 * latent,
                    ProposalKind::MidxUniform | ProposalKind::MidxPopularity => index(queries),
                    ProposalKind::Kernel => {
                        queries * config.negatives as f64 * items.max(2.0).log2() * latent * latent
                    }
                    ProposalKind::Dns => 10.0 * scored * latent,
                    ProposalKind::Uniform | ProposalKind::Popularity => 0.0,
                };
                (draw, scored)
            }
        };
        let rows = steps as f64 * (touched(kept) * columns + touched(targets) * latent);
        Self {
            // Each of encoder, dense layers and scores: forward, gradient of inputs, gradient of rows.
            step_operations: 4.0 * kept * columns
                + 6.0 * users * hidden * (2.0 * latent + rank)
                + 6.0 * targets * latent
                + draw
                + 12.0 * rows,
            // A row of scores is read once; a touched row and its two moments are read and written.
            step_bytes: FLOAT as f64 * (kept * columns + targets * latent + 6.0 * rows),
            refresh_operations: match (config.model, config.proposal) {
                (ModelKind::MultVae, _) => 0.0,
                (_, ProposalKind::MidxExact | ProposalKind::MidxUniform | ProposalKind::MidxPopularity) => {
                    let sample = items.min(kmeans::SAMPLE.max(256 * config.codewords) as f64);
                    let points = items + kmeans::WARM_ITERATIONS as f64 * sample;
                    points * 2.0 * codewords * latent / interval
                }
                (_, ProposalKind::Kernel) => items * latent * latent / interval,
                _ => 0.0,
            },
            steps,
        }
    }
}

/// The length of a row in memory.
fn stride(columns: usize) -> u64 {
    columns.next_multiple_of(LANES) as u64
}

fn batch_bytes(config: &Config, n_users: usize, n_items: usize, n_interactions: usize) -> u64 {
    let batch = config.batch.min(n_users.max(1)) as f64;
    let samples = config.latent_samples as f64;
    let history = n_interactions as f64 / n_users.max(1) as f64;
    let matrices = config.batch as f64
        * (2.0 * (stride(config.hidden) + stride(config.encoder_rank)) as f64
            + stride(2 * config.latent) as f64
            + 2.0 * samples * stride(config.latent) as f64);
    let queries = batch * samples;
    let kept = batch * history * (1.0 - f64::from(config.dropout));
    let positives = queries * history;
    // Entries of the encoder and of the items, and the rows and weights that they are made from.
    let entries = ENTRY_BYTES as f64 * GROWTH * (kept + positives) + 2.0 * DRAW as f64 * (kept + positives);
    let sampled = match config.model {
        ModelKind::FastVae => sampled_bytes(config, n_items, queries, positives),
        ModelKind::MultVae => 0.0,
    };
    (FLOAT as f64 * matrices + entries + sampled) as u64
}

/// What a step holds of its negatives, and what it sums them up in.
fn sampled_bytes(config: &Config, n_items: usize, queries: f64, positives: f64) -> f64 {
    let n_parts = Partitions::wanted(config, n_items) as f64;
    let row = stride(config.latent) as f64 * FLOAT as f64;
    let negatives = config.negatives as f64;
    let reorders = reorders(config, n_items);
    // The draws of a query in a partition fill whole lines; their rows are listed apart where they are not the places.
    let padded = negatives + n_parts.min(negatives) * LANES as f64 / 2.0;
    let draws = queries * padded * (DRAW + if reorders { 0 } else { FLOAT }) as f64;
    let slots = (config.codewords as f64).powi(config.codebooks as i32);
    let spread = queries * RUN_BYTES as f64 * SPREAD_GROWTH * negatives.min(slots);
    // Of each query in each partition: where its draws fell (three numbers) and end, its sums (two) and factor.
    let sums = queries * n_parts * (row + (7 * FLOAT) as f64);
    let entries = queries * negatives + positives;
    // One partition for each thread: its gradients, or its entries in the order of the items.
    let added_up = if entries >= n_items as f64 {
        (n_items as f64 * row / n_parts).max(HUGE_PAGE as f64)
    } else {
        SORTING_BYTES as f64 * SPREAD_GROWTH * entries / n_parts
    };
    draws + spread + sums + config.n_threads() as f64 * added_up
}

/// Whether a step puts the item tables into the order of the cells.
fn reorders(config: &Config, n_items: usize) -> bool {
    let midx = matches!(config.proposal, ProposalKind::MidxPopularity | ProposalKind::MidxUniform);
    let draws = config.batch * config.latent_samples * config.negatives;
    config.model == ModelKind::FastVae && midx && draws >= n_items
}

fn batch_formula(config: &Config) -> String {
    format!("states and gradient entries of {} users", config.batch)
}

/// What the proposal holds.
fn proposal_bytes(config: &Config, n_items: usize) -> u64 {
    let items = n_items as u64;
    if config.model == ModelKind::MultVae {
        return 0;
    }
    // Codes, the items of each cell and the cell of each item, of the last refresh too while the next one runs; the items
    // by place, and the places.
    let index = 2 * (items * config.codebooks as u64 + 2 * table_bytes(items)) + 2 * table_bytes(items);
    // And the place, slot and weight of each item.
    let uniform = index + table_bytes(3 * items);
    match config.proposal {
        ProposalKind::Uniform | ProposalKind::Dns | ProposalKind::Softmax => 0,
        ProposalKind::Popularity => items * 16,
        ProposalKind::MidxExact => index,
        ProposalKind::MidxUniform => uniform,
        // Weights by item; those within the cells take the place of the last index.
        ProposalKind::MidxPopularity => uniform + table_bytes(4 * items) - 2 * table_bytes(items) + 4 * items,
        ProposalKind::Kernel => {
            let leaves = items.div_ceil(config.latent.max(1) as u64);
            2 * leaves * (config.latent as u64 * (config.latent as u64 + 1) / 2 + 2) * FLOAT
        }
    }
}

/// Whether the proposal is drawn by an index.
fn has_index(config: &Config) -> bool {
    use ProposalKind::{MidxExact, MidxPopularity, MidxUniform};
    config.model == ModelKind::FastVae && matches!(config.proposal, MidxExact | MidxUniform | MidxPopularity)
}

/// The codes of the index, as files hold them.
fn stored_index_bytes(config: &Config, items: u64) -> u64 {
    if has_index(config) { items * config.codebooks as u64 } else { 0 }
}

fn proposal_formula(config: &Config) -> String {
    match (config.model, config.proposal) {
        (ModelKind::MultVae, _) => "none: the full softmax draws nothing".to_string(),
        (_, ProposalKind::MidxPopularity | ProposalKind::MidxUniform | ProposalKind::MidxExact) => {
            format!("index of {} codebooks x {} codewords", config.codebooks, config.codewords)
        }
        (_, ProposalKind::Kernel) => "a tree of sums over the items".to_string(),
        _ => "weights of the items".to_string(),
    }
}

fn diagnostics_bytes(config: &Config, items: u64, threads: u64) -> u64 {
    match config.model {
        // The logits of the user that a thread looks at.
        ModelKind::FastVae => FLOAT * items * threads.min(8),
        ModelKind::MultVae => 0,
    }
}

/// What a model holds beside its parameters: a copy of the index, and how often each item was met.
fn saving_bytes(config: &Config, items: u64) -> u64 {
    let lists = if has_index(config) { items * 2 * FLOAT } else { 0 };
    stored_index_bytes(config, items) + lists + items * FLOAT
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of a million rows of this many columns: large ones take whole huge pages of two megabytes.
    fn tables(n: u64, columns: u64) -> u64 {
        n * (1_000_000 * columns * 4).next_multiple_of(2 << 20)
    }

    fn part(plan: &MemoryPlan, name: &str) -> u64 {
        plan.parts.iter().find(|part| part.name == name).unwrap_or_else(|| panic!("{name}")).bytes
    }

    #[test]
    fn a_million_items_with_the_paper_preset_take_tables_of_232_columns_and_half_of_that_for_moments() {
        let plan = MemoryPlan::of(&Config::paper(), 100_000, 1_000_000, 1_000_000);
        assert_eq!(part(&plan, "encoder with moments"), tables(1, 208) + tables(1, 112) + tables(1, 2));
        assert_eq!(part(&plan, "item vectors with moments"), tables(1, 32) + tables(1, 16) + tables(1, 2));
        assert_eq!(part(&plan, "interactions"), 4_000_000 + 800_000);
        assert!(!plan.parts.iter().any(|part| part.name == "parameters of the best epoch"));
        assert!((1_480_000_000..1_800_000_000).contains(&plan.peak_bytes()), "{}", plan.peak_bytes());
    }

    #[test]
    fn compact_moments_take_half_off_the_tables() {
        let plan = |moments| {
            let config = Config { moments, ..Config::paper() };
            MemoryPlan::of(&config, 100_000, 1_000_000, 1_000_000)
        };
        let (full, compact) = (plan(MomentKind::Full), plan(MomentKind::Compact));
        assert_eq!(part(&full, "encoder with moments"), tables(3, 208) + tables(1, 2));
        assert_eq!(part(&full, "item vectors with moments"), tables(3, 32) + tables(1, 2));
        assert_eq!(part(&compact, "encoder with moments"), tables(1, 208) + tables(1, 112) + tables(1, 2));
        let saved = tables(2, 208) + tables(2, 32) - tables(1, 112) - tables(1, 16);
        assert_eq!(compact.peak_bytes(), full.peak_bytes() - saved);
        let saved = 2 * (200 + 32) - 112 - 16;
        assert_eq!(compact.checkpoint_bytes, full.checkpoint_bytes - 1_000_000 * saved * 4);
        // Rows of the tables are not padded on disk.
        assert!((2_784_000_000..2_850_000_000).contains(&full.checkpoint_bytes));
    }

    #[test]
    fn a_factored_encoder_is_as_narrow_as_its_rank() {
        let config = Config { encoder_rank: 32, ..Config::paper() };
        let plan = MemoryPlan::of(&config, 100_000, 1_000_000, 1_000_000);
        assert_eq!(part(&plan, "encoder with moments"), tables(1, 32) + tables(1, 16) + tables(1, 2));
        assert!(plan.model_bytes < 1_000_000 * (32 + 32) * 4 + 40_000_000);
    }

    #[test]
    fn validation_keeps_the_best_parameters_and_the_whole_data() {
        let with = Config { patience: 4, ..Config::paper() };
        let (with, without) =
            (MemoryPlan::of(&with, 1000, 5000, 40_000), MemoryPlan::of(&Config::paper(), 1000, 5000, 40_000));
        assert!(part(&with, "parameters of the best epoch") > 5000 * 232 * 4);
        assert_eq!(part(&with, "interactions"), 2 * part(&without, "interactions"));
        assert!(with.checkpoint_bytes > without.checkpoint_bytes);
    }

    #[test]
    fn the_steps_of_a_sampled_model_do_not_grow_with_the_catalogue() {
        let cost = |config: &Config, n_items| EpochCost::of(config, 10_000, n_items, 500_000);
        // Once the draws of a step rarely meet the same row twice, more items mean no more work.
        let config = Config::paper();
        let (small, large) = (cost(&config, 1_000_000), cost(&config, 10_000_000));
        assert!(large.step_operations < 1.2 * small.step_operations);
        // The index lasts longer where items are drawn more rarely.
        assert!(large.refresh_operations < 3.0 * small.refresh_operations);
        let each = Config { refresh_every: 1, ..config.clone() };
        assert!(cost(&each, 10_000_000).refresh_operations > 9.0 * small.refresh_operations);
        let full = Config { model: ModelKind::MultVae, ..config };
        let (small, large) = (cost(&full, 1_000_000), cost(&full, 10_000_000));
        assert!(large.step_operations > 5.0 * small.step_operations);
    }

    #[test]
    fn every_model_and_proposal_has_a_plan() {
        for model in [ModelKind::FastVae, ModelKind::MultVae] {
            for proposal in [
                ProposalKind::Uniform,
                ProposalKind::Popularity,
                ProposalKind::Softmax,
                ProposalKind::Kernel,
                ProposalKind::Dns,
                ProposalKind::MidxExact,
                ProposalKind::MidxUniform,
                ProposalKind::MidxPopularity,
            ] {
                let config = Config { model, proposal, item_bias: true, batch: 512, ..Config::default() };
                let plan = MemoryPlan::of(&config, 100, 200, 1000);
                assert!(plan.peak_bytes() > PROGRAM && plan.checkpoint_bytes > plan.model_bytes);
                let cost = EpochCost::of(&config, 100, 200, 1000);
                assert!(cost.step_operations > 0.0 && cost.step_bytes > 0.0 && cost.steps == 1);
            }
        }
    }
}
