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
pub use softmax::Softmax;
pub use state::{State, StateData, StateTensor};
pub use systematic::RunSlice;
pub use uniform::Uniform;

use crate::config::{Config, ProposalKind};
use crate::data::ItemId;
use crate::error::{Error, Result};
use crate::index::{IndexSettings, InvertedMultiIndex};
use crate::math::{MatrixView, Stream};

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
///
/// A draw is made in two halves: [`Proposal::spread`] decides the partition of each, [`Proposal::settle`] the
/// items of one partition. Kinds that know the items after the first half leave places, the others runs.
#[derive(Debug, Clone, Default)]
pub struct Draws {
    /// The place of each draw (see [`Partitions`]), with repetition, partition by partition.
    pub places: Vec<u32>,
    /// What the loss subtracts from each drawn item's logit: its `ln Q` (see [`Proposal::correction`]).
    pub correction: Vec<f32>,
    /// Drawn items, as [`Proposal::draw`] leaves them.
    pub items: Vec<ItemId>,
    /// Where the draws of each partition end.
    ends: Vec<u32>,
    /// Draws whose places [`Proposal::settle`] has still to choose, partition by partition.
    runs: Runs,
    /// Where the runs of each partition end; none where draws have their places.
    run_ends: Vec<u32>,
}

impl Draws {
    /// Makes room for the places of `n` draws that need no settling; their values are left over from before.
    fn resize(&mut self, n: usize) {
        self.places.resize(n, 0);
        self.correction.resize(n, 0.0);
        self.run_ends.clear();
    }

    /// The draws of partition `partition`, as a range of each list.
    #[inline(always)]
    pub fn range(&self, partition: usize) -> std::ops::Range<usize> {
        span(&self.ends, partition)
    }

    /// The runs of partition `partition`, to be settled; none where the draws have their places already.
    #[inline(always)]
    pub fn runs(&self, partition: usize) -> Option<RunSlice<'_>> {
        (!self.run_ends.is_empty()).then(|| self.runs.slice(span(&self.run_ends, partition)))
    }

    /// Takes the slots of `runs` as places, each as often as it was drawn, with its `log_q`.
    fn repeat(&mut self, runs: &Runs, log_q: impl Fn(u32) -> f32) {
        self.resize(0);
        for (slot, count) in runs.iter() {
            let n = self.places.len() + count as usize;
            self.places.resize(n, slot);
            self.correction.resize(n, log_q(slot));
        }
    }

    /// Cuts the runs into partitions that end at the slots `slot_ends`.
    fn cut_runs(&mut self, slot_ends: &[u32]) {
        self.ends.clear();
        self.run_ends.clear();
        let RunSlice { slots, counts, .. } = self.runs.slice(0..self.runs.len());
        let (mut drawn, mut end) = (0, 0);
        for &slot_end in slot_ends {
            let start = end;
            end += slots[end..].partition_point(|&slot| slot < slot_end);
            drawn += counts[start..end].iter().sum::<u32>();
            self.ends.push(drawn);
            self.run_ends.push(end as u32);
        }
        debug_assert_eq!(end, self.runs.len(), "every slot lies below the last end");
    }
}

/// The stretch that ends at `ends[k]`.
#[inline(always)]
fn span(ends: &[u32], k: usize) -> std::ops::Range<usize> {
    let start = if k == 0 { 0 } else { ends[k - 1] };
    start as usize..ends[k] as usize
}

/// A distribution over items given a query.
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
    /// decides the partition of each, and all that the second half needs without `scratch`.
    /// Cost: O(n) for MIDX, no allocation once the buffers have grown.
    fn spread(
        &self,
        n: usize,
        query: &[f32],
        items: ItemTable<'_>,
        stream: &Stream,
        scratch: &mut Scratch,
        draws: &mut Draws,
    );

    /// The second half, once for each partition: fills `places` and `correction` of the draws that
    /// [`Proposal::spread`] left there as `runs`. Not called where it left places.
    fn settle(&self, _runs: RunSlice<'_>, _places: &mut [u32], _correction: &mut [f32]) {
        unreachable!("draws that have places are settled")
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
        self.spread(n, query, items, stream, scratch, draws);
        draws.places.resize(n, 0);
        draws.correction.resize(n, 0.0);
        for partition in 0..draws.run_ends.len() {
            let (range, runs) = (draws.range(partition), span(&draws.run_ends, partition));
            let (places, correction) = (&mut draws.places[range.clone()], &mut draws.correction[range]);
            self.settle(draws.runs.slice(runs), places, correction);
        }
        draws.items.clear();
        draws.items.extend(draws.places.iter().map(|&place| self.partitions().item(place)));
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
    /// Draws as it gives them, where they are not left as such.
    runs: Runs,
    /// Sorted draws in units of weight.
    targets: Vec<f64>,
    /// Random words.
    words: Vec<u32>,
    /// Items by rank.
    order: Vec<u32>,
    /// Ranks of items.
    ranks: Vec<u32>,
}
