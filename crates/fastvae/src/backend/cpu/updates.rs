//! The last stage of a step: every touched row and every dense layer is updated, by tasks of one list.

use std::sync::Mutex;
use std::time::Instant;

use super::dense_layers::{self, Bias, Slab};
use super::grouping::Buckets;
use super::item_rows::ItemUpdates;
use super::negatives::ItemRows;
use super::rows::{RowChunk, RowTable, RowUpdates};
use super::{CpuBackend, bias_column, used_blocks};
use crate::backend::{Phase, PhaseTimes, RunState};
use crate::data::UserId;
use crate::network::Parameters;
use crate::optim::Update;

/// A task of the last stage of a step.
enum UpdateTask<'a> {
    /// The item vectors of a partition.
    Items(usize),
    /// A bucket of the encoder's rows.
    Encoder(usize, RowChunk<'a>),
    /// Some rows of a dense layer.
    Layer(Slab<'a>),
    Bias(Bias<'a>),
}

impl CpuBackend {
    /// Updates the encoder's rows and the dense layers, and for a sampling model the item vectors.
    pub(super) fn update_stage(&mut self, state: &mut RunState, users: &[UserId], update: &Update) {
        let blocks = used_blocks(&self.blocks, users);
        let inputs: Vec<&Buckets> = blocks.iter().map(|block| &block.inputs).collect();
        let by_place = self.by_place;
        let rows =
            state.proposal.as_ref().map(|proposal| ItemRows { partitions: proposal.partitions(), by_place });
        let n = users.len();
        let hidden = self.buffers.hidden.view().rows_from(0, n);
        let hidden_gradient = self.buffers.hidden_gradient.view().rows_from(0, n);
        let factored = self
            .buffers
            .factored
            .as_ref()
            .map(|(sums, gradient)| (sums.view().rows_from(0, n), gradient.view().rows_from(0, n)));
        let head_gradient = self.buffers.head_gradient.view().rows_from(0, n);
        let queries = self.buffers.queries.view();
        let Parameters { encoder, encoder_map, hidden_bias, head, head_bias, items, item_bias } =
            &mut state.parameters;
        let moments = &mut state.moments;
        let item_updates = rows.map(|rows| {
            let bias = bias_column(item_bias, &mut moments.item_bias);
            let table = RowTable { rows: items, moments: &mut moments.items, bias };
            ItemUpdates::new(table, rows, (blocks, &self.negatives), queries, update)
        });
        let n_parts = rows.map_or(0, |rows| rows.partitions.len());
        let source = factored.map_or(hidden_gradient, |(_, gradient)| gradient);
        let layout = self.encoder_layout;
        let row_updates = RowUpdates { blocks: &inputs, layout, source, update };
        let encoder = RowTable { rows: encoder, moments: &mut moments.encoder, bias: None };
        let encoder = encoder.chunks(layout.width()).into_iter().enumerate();
        let layers = dense_layers::slabs(head, &mut moments.head, hidden, head_gradient);
        let map = encoder_map.as_mut().zip(moments.encoder_map.as_mut()).zip(factored);
        let map =
            map.map(|((map, moments), (sums, _))| dense_layers::slabs(map, moments, sums, hidden_gradient));
        let bias = |values, moments, gradient| UpdateTask::Bias(Bias { values, moments, gradient });
        let team = &self.team;
        // The longest first, so that no thread is left with one at the end.
        let mut tasks: Vec<UpdateTask<'_>> = (0..n_parts)
            .map(|position| UpdateTask::Items(team.backwards(n_parts, position)))
            .chain(encoder.map(|(bucket, chunk)| UpdateTask::Encoder(bucket, chunk)))
            .chain(layers.chain(map.into_iter().flatten()).map(UpdateTask::Layer))
            .chain([
                bias(hidden_bias, &mut moments.hidden_bias, hidden_gradient),
                bias(head_bias, &mut moments.head_bias, head_gradient),
            ])
            .collect();
        let (pool, sum) = (&self.part_buffers, Mutex::new(PhaseTimes::default()));
        self.team.for_each_mut(&mut tasks, |_, task| {
            let mut lap = Instant::now();
            let pool = || pool.lock().expect("no task panics while it holds the pool");
            let mut buffers = pool().pop().unwrap_or_default();
            let phase = match task {
                UpdateTask::Items(partition) => {
                    item_updates.iter().for_each(|items| items.run(*partition, &mut buffers));
                    Phase::Items
                }
                UpdateTask::Encoder(bucket, chunk) => {
                    row_updates.run(*bucket, chunk, &mut buffers.row);
                    Phase::Encoder
                }
                UpdateTask::Layer(slab) => {
                    slab.update(update);
                    Phase::Head
                }
                UpdateTask::Bias(bias) => {
                    bias.update(update);
                    Phase::Head
                }
            };
            pool().push(buffers);
            sum.lock().expect("no task panics while it adds up").lap(phase, &mut lap);
        });
        self.times.add(&sum.into_inner().expect("as above"));
    }
}
