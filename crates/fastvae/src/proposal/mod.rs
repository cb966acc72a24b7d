//! Where negatives come from: distributions Q over items given a query (sections 4 and 5 of the paper).
//!
//! A proposal is asked in three steps. [`Proposal::refresh`] rebuilds what follows the item vectors, once per
//! refresh. [`Proposal::prepare`] does the work of one query, [`Proposal::draw`] and [`Proposal::log_q`] then
//! answer for it from the [`Scratch`] that it filled. One contract holds for every kind: Q sums to one, draws
//! follow Q, and the `ln Q` of a draw is the `ln Q` asked for that item.

mod alias;
mod cells;
mod dns;
mod kernel;
mod logits;
mod members;
mod midx;
mod midx_exact;
mod partitions;
mod popularity;
mod settle;
mod softmax;
mod spread;
mod state;
mod systematic;
mod uniform;

#[cfg(test)]
mod contract;
#[cfg(test)]
mod timing;

pub use dns::Dns;
pub use kernel::Kernel;
pub use midx::{Midx, Within};
pub use midx_exact::MidxExact;
pub use partitions::Partitions;
pub use popularity::PopularityProposal;
pub use settle::Settling;
pub use softmax::Softmax;
pub use spread::{Spread, Total};
pub use state::{State, StateData, StateTensor};
pub use uniform::Uniform;

use crate::config::{Config, ProposalKind};
use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::matrix::LANES;
use crate::math::{MatrixView, Stream};

pub(crate) use systematic::RUN_BYTES;
use systematic::{Runs, Systematic};

/// The item side of the decoder: logit_i = query . vectors_i + bias_i.
#[derive(Debug, Clone, Copy)]
pub struct ItemTable<'a> {
    /// Item vectors, `n_items x latent`.
    pub vectors: MatrixView<'a>,
    /// Item biases, where the model has them.
    pub bias: Option<&'a [f32]>,
}

/// The negatives of one query; buffers are reused from query to query.
#[derive(Debug, Clone, Default)]
pub struct Draws {
    /// The place of each draw (see [`Partitions`]), with repetition, partition by partition.
    pub places: Vec<u32>,
    /// What the loss subtracts from each drawn item's logit: its `ln Q` (see [`Proposal::correction`]).
    pub correction: Vec<f32>,
    /// Drawn items.
    pub items: Vec<ItemId>,
    spread: Spread,
    ends: Vec<u32>,
    coins: Vec<u32>,
}

/// A distribution over items given a query.
///
/// A draw is made in two halves: [`Proposal::spread`] decides the partition of each, [`Proposal::settle`] the items of
/// one partition. Kinds that know the items after the first half leave places, the others runs.
pub trait Proposal: Send + Sync + std::fmt::Debug {
    /// Which one this is.
    fn kind(&self) -> ProposalKind;

    /// Rebuilds what depends on the item vectors. Work is spread over the current thread pool; the result
    /// does not depend on the number of threads. The first refresh (or [`Proposal::restore`]) comes before the
    /// first query.
    ///
    /// # Errors
    /// [`crate::Error::Config`] if the settings do not fit the table (more codewords than items).
    fn refresh(&mut self, items: ItemTable<'_>, seed: u64, epoch: u32) -> Result<()>;

    /// Does the work of one query; `items` is the table as it is now, which may be newer than the last refresh.
    fn prepare(&self, query: &[f32], items: ItemTable<'_>, scratch: &mut Scratch);

    /// The parts of the catalogue that draws come grouped by, as they are since the last refresh.
    fn partitions(&self) -> &Partitions;

    /// The first half of `n` draws, each distributed as Q, for the query of the last [`Proposal::prepare`] on `scratch`:
    /// decides the partition of each, and all that the second half needs without `scratch`. Adds a query to `spread`,
    /// which was cleared for these [`Proposal::partitions`] and has room for it.
    /// Cost: O(n) for MIDX, no allocation once the buffers have grown.
    fn spread(
        &self,
        n: usize,
        query: &[f32],
        items: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        spread: &mut Spread,
    );

    /// The second half, once for each partition: settles the draws that [`Proposal::spread`] left there for the queries of
    /// `spread`, which have places unless it left runs.
    fn settle(&self, spread: &Spread, partition: usize, out: Settling<'_>) {
        settle::copy_places(spread, partition, out);
    }

    /// Whether a query reads the item vectors, which must then be in the order of the items.
    fn reads_vectors(&self) -> bool {
        true
    }

    /// Both halves.
    fn draw(
        &self,
        n: usize,
        query: &[f32],
        items: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        draws: &mut Draws,
    ) {
        let Draws { places, correction, items: drawn, spread, ends, coins } = draws;
        spread.clear(self.partitions().len(), 1);
        self.spread(n, query, items, stream, scratch, spread);
        places.resize(n + 2 * LANES, 0);
        correction.resize(n + 2 * LANES, 0.0);
        let mut start = 0;
        for partition in 0..self.partitions().len() {
            let (places, correction) = (&mut places[start..], &mut correction[start..]);
            ends.clear();
            self.settle(spread, partition, Settling { places, correction, ends, coins });
            start += spread.total(partition).draws;
        }
        places.truncate(n);
        correction.truncate(n);
        drawn.clear();
        drawn.extend(places.iter().map(|&place| self.partitions().item(place)));
    }

    /// `log_q[i] = ln Q(of[i] | query)`, normalised, for the query of the last [`Proposal::prepare`].
    fn log_q(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        log_q: &mut [f32],
    );

    /// What the loss subtracts from the logits of `of`: `ln Q`, except where that is too dear and a constant
    /// stands in (`dns`).
    fn correction(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        correction: &mut [f32],
    ) {
        self.log_q(of, query, items, scratch, correction);
    }

    /// Asks the processor to load soon what [`Proposal::locate`] reads for `of`.
    fn ask(&self, _of: &[ItemId]) {}

    /// The place and the [`Proposal::correction`] of each of `of`: a step needs both of a user's positives.
    fn locate(
        &self,
        of: &[ItemId],
        query: &[f32],
        items: ItemTable<'_>,
        scratch: &mut Scratch,
        places: &mut [u32],
        correction: &mut [f32],
    ) {
        let partitions = self.partitions();
        places.iter_mut().zip(of).for_each(|(place, &item)| *place = partitions.place(item));
        self.correction(of, query, items, scratch, correction);
    }

    /// The index that the proposal draws through, where it has one and it was built.
    fn index(&self) -> Option<&InvertedMultiIndex> {
        None
    }

    /// What [`Proposal::refresh`] left, by name: enough to draw bit for bit the same after
    /// [`Proposal::restore`]. Empty before the first refresh, and for kinds that keep nothing.
    fn state(&self) -> State {
        Vec::new()
    }

    /// Takes back what [`Proposal::state`] gave, instead of a refresh.
    ///
    /// # Errors
    /// [`crate::Error::Data`] if tensors are missing or do not fit; the proposal is then as it was before.
    fn restore(&mut self, state: State) -> Result<()> {
        state::Reader::new(state).finish()
    }
}

/// The proposal that `config` asks for, over items that `item_counts` users touched; it needs a
/// [`Proposal::refresh`] before the first query.
///
/// # Errors
/// [`Error::Data`] without items; [`Error::Config`] if there are more codewords than items.
pub fn build(config: &Config, item_counts: &[u32]) -> Result<Box<dyn Proposal>> {
    let n_items = item_counts.len();
    if n_items == 0 || u32::try_from(n_items).is_err() {
        return Err(Error::data(format!("{n_items} items"), "give data with 1 to 4,294,967,295 items"));
    }
    let settings = IndexSettings::from(config);
    let wanted = Partitions::wanted(config, n_items);
    let ranges = || Partitions::ranges(n_items, wanted);
    let by_popularity = || item_counts.iter().map(|&count| config.popularity.weight(count));
    Ok(match config.proposal {
        ProposalKind::Uniform => Box::new(Uniform::new(ranges())),
        ProposalKind::Popularity => Box::new(PopularityProposal::new(by_popularity(), ranges())),
        ProposalKind::Softmax => Box::new(Softmax::new(ranges())),
        ProposalKind::Kernel => Box::new(Kernel::new(ranges(), config.latent)),
        ProposalKind::Dns => Box::new(Dns::new(ranges())),
        ProposalKind::MidxExact => Box::new(MidxExact::new(settings, n_items, config.latent, wanted)?),
        ProposalKind::MidxUniform => {
            Box::new(Midx::new(settings, Within::Uniform, n_items, config.latent, wanted)?)
        }
        ProposalKind::MidxPopularity => {
            let within = Within::Popularity(by_popularity().map(f32::ln).collect());
            Box::new(Midx::new(settings, within, n_items, config.latent, wanted)?)
        }
    })
}

/// What [`Proposal::prepare`] leaves for draws, and buffers; one per thread, reused. Belongs to no proposal:
/// each `prepare` overwrites what it needs.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The query, padded with zeros to whole vectors.
    query: Vec<f32>,
    /// Inner products with the codewords.
    scores: Vec<f32>,
    /// Logits of items or cells.
    logits: Vec<f32>,
    /// Unnormalised probabilities of items, cells or nodes, padded with zeros to whole vectors.
    weights: Vec<f32>,
    /// Their sum.
    total: f64,
    /// ln of what the logits' exponentials sum to.
    log_z: f32,
    /// ln Q of an item of weight one in each cell (MIDX), or of a kernel of one in each leaf (kernel).
    log_base: Vec<f32>,
    systematic: Systematic,
    /// Draws as it gives them.
    runs: Runs,
    /// Places of draws, ascending, and what goes with them.
    places: Vec<u32>,
    correction: Vec<f32>,
    /// Sorted draws in units of weight.
    targets: Vec<f64>,
    /// Random words.
    words: Vec<u32>,
    /// Items by rank.
    order: Vec<u32>,
    /// Ranks of items.
    ranks: Vec<u32>,
}
