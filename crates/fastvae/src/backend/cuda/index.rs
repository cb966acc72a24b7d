//! The refresh of the index on the device.

use super::device::{Gpu, Memory};
use super::state::{Clustering, Pointer, Points, Run};
use super::tables::{after, is_residual, one_word};
use crate::config::Config;
use crate::data::Interactions;
use crate::error::Result;
use crate::index::kmeans::{self, COLD_ITERATIONS, SAMPLE, WARM_ITERATIONS};
use crate::index::{Codebook, IndexSettings, InvertedMultiIndex};
use crate::math::matrix::LANES;
use crate::math::{Matrix, MatrixView};
use crate::proposal::{State, StateTensor};

/// Bytes of shared memory that a block's sums of points may take.
const SUM_BYTES: u32 = 32 << 10;
/// Items of one warp of the sort, as in the kernels.
const TILE: usize = 1024;
const ASSIGN_THREADS: u32 = 128;

/// Buffers of the refresh.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    settings: IndexSettings,
    n_items: usize,
    dim: usize,
    seed: u64,
    sample: usize,
    clustering: Clustering,
    counts: Pointer,
    other_list: Pointer,
    missing: Pointer,
    spare: Pointer,
    /// Whether there are codewords to start from.
    built: bool,
    residual: [u32; 2],
}

impl IndexBuilder {
    pub fn new(gpu: &Gpu, memory: &mut Memory, config: &Config, train: &Interactions) -> Result<Self> {
        let (n_items, dim) = (train.n_items(), config.latent);
        let settings = IndexSettings::from(config);
        let sample = n_items.min(SAMPLE.max(256 * config.codewords));
        let widest = settings.columns(0, dim).len();
        let n_tiles = n_items.div_ceil(TILE);
        let bytes = (widest + 1) * config.codewords.next_multiple_of(LANES) * size_of::<f32>();
        let remedy = ("codewords", "give fewer codewords, or a smaller latent");
        gpu.allow_shared("assign", bytes as u32, remedy)?;
        Ok(Self {
            settings,
            n_items,
            dim,
            seed: config.seed,
            sample,
            clustering: Clustering {
                codes: memory.zeros::<u8>(gpu, sample)?,
                sums: memory.zeros::<i64>(gpu, config.codewords * widest)?,
                counts: memory.zeros::<u32>(gpu, config.codewords)?,
                farthest: memory.zeros::<u64>(gpu, 1)?,
            },
            counts: memory.zeros::<u32>(gpu, config.codewords * n_tiles + 1)?,
            other_list: memory.zeros::<u32>(gpu, n_items)?,
            missing: memory.zeros::<f64>(gpu, n_items)?,
            spare: memory.zeros::<f64>(gpu, n_items)?,
            built: false,
            residual: [is_residual(config, 0), is_residual(config, 1)],
        })
    }

    /// Whether there are codewords to start from.
    pub fn is_built(&self) -> bool {
        self.built
    }

    /// Moves the codewords after the item vectors and codes the items anew. `vectors` are the item vectors on this
    /// machine; only the first refresh reads them.
    pub fn refresh(&mut self, gpu: &Gpu, run: &mut Run, vectors: MatrixView<'_>, epoch: u32) -> Result<()> {
        for book in 0..2 {
            let (offset, first) = {
                let columns = self.settings.columns(book, self.dim);
                let mut points = kmeans::Points::new(vectors, columns);
                let earlier;
                if self.residual[book] != 0 && !self.built {
                    earlier = self.codebook(gpu, run, 0)?;
                    points = points.without(&earlier.0, &earlier.1);
                }
                let k = self.settings.n_codewords;
                kmeans::start(&points, k, self.built, self.seed, epoch, book as u16)
            };
            if let Some(codebook) = first {
                gpu.write(run.codebooks[book], codebook.transposed().data())?;
            }
            let points = Points {
                book: book as u32,
                residual: self.residual[book],
                n: self.sample as u32,
                of: self.n_items as u32,
                offset: offset as u64,
            };
            let iterations = if self.built { WARM_ITERATIONS } else { COLD_ITERATIONS };
            for _ in 0..iterations {
                self.assign(gpu, run, points, self.clustering.codes, self.clustering.farthest)?;
                self.move_codewords(gpu, run, points)?;
            }
            let all = Points { n: self.n_items as u32, offset: 0, ..points };
            self.assign(gpu, run, all, after::<u8>(run.codes, book * self.n_items), 0)?;
        }
        self.built = true;
        self.build_lists(gpu, run)
    }

    /// Takes an index over from this machine.
    pub fn send(&mut self, gpu: &Gpu, run: &mut Run, index: &InvertedMultiIndex) -> Result<()> {
        for (book, codebook) in index.codebooks().iter().enumerate() {
            gpu.write(run.codebooks[book], codebook.transposed().data())?;
        }
        gpu.write(run.codes, index.codes())?;
        self.built = true;
        self.build_lists(gpu, run)
    }

    /// The codewords and codes, as a proposal restores them.
    pub fn fetch(&self, gpu: &Gpu, run: &Run) -> Result<State> {
        let mut state = State::new();
        let mut codes = vec![0; 2 * self.n_items];
        gpu.read(run.codes, &mut codes)?;
        for book in 0..2 {
            let matrix = self.codewords(gpu, run, book)?;
            state.push((format!("codebook.{book}"), StateTensor::matrix(&matrix)));
        }
        state.push(("codes".into(), StateTensor::u8([2, self.n_items], codes)));
        Ok(state)
    }

    fn codewords(&self, gpu: &Gpu, run: &Run, book: usize) -> Result<Matrix> {
        let width = self.settings.columns(book, self.dim).len();
        let mut transposed = vec![0.0f32; width * run.score_stride as usize];
        gpu.read(run.codebooks[book], &mut transposed)?;
        let mut matrix = Matrix::zeros(self.settings.n_codewords, width);
        for k in 0..self.settings.n_codewords {
            for d in 0..width {
                matrix.row_mut(k)[d] = transposed[d * run.score_stride as usize + k];
            }
        }
        Ok(matrix)
    }

    /// One codebook with the codes of all items.
    fn codebook(&self, gpu: &Gpu, run: &Run, book: usize) -> Result<(Codebook, Vec<u8>)> {
        let columns = self.settings.columns(book, self.dim);
        let mut codes = vec![0; self.n_items];
        gpu.read(after::<u8>(run.codes, book * self.n_items), &mut codes)?;
        Ok((Codebook::new(columns, self.codewords(gpu, run, book)?), codes))
    }

    fn assign(
        &self,
        gpu: &Gpu,
        run: &Run,
        points: Points,
        mut codes: Pointer,
        mut farthest: Pointer,
    ) -> Result<()> {
        let width = run.columns_end[points.book as usize] - run.columns_start[points.book as usize];
        let shared = (width + 1) * run.score_stride * 4;
        let grid = points.n.div_ceil(ASSIGN_THREADS).min(gpu.multiprocessors * 16);
        let (mut run, mut points) = (*run, points);
        let arguments = &mut [
            (&raw mut run).cast(),
            (&raw mut points).cast(),
            (&raw mut codes).cast(),
            (&raw mut farthest).cast(),
        ];
        // SAFETY: the arguments of `assign`.
        unsafe { gpu.launch("assign", (grid, 1), ASSIGN_THREADS, shared, arguments) }
    }

    fn move_codewords(&self, gpu: &Gpu, run: &Run, points: Points) -> Result<()> {
        let width = run.columns_end[points.book as usize] - run.columns_start[points.book as usize];
        let bytes = run.n_codewords * width * 8;
        let mut room = u32::from(bytes <= SUM_BYTES);
        let (mut run, mut points, mut clustering) = (*run, points, self.clustering);
        let sum = &mut [
            (&raw mut run).cast(),
            (&raw mut points).cast(),
            (&raw mut clustering).cast(),
            (&raw mut room).cast(),
        ];
        let go = &mut [(&raw mut run).cast(), (&raw mut points).cast(), (&raw mut clustering).cast()];
        let grid = points.n.div_ceil(64).min(gpu.multiprocessors * 2);
        // SAFETY: the arguments of both kernels.
        unsafe {
            gpu.launch("sum_points", (grid, 1), 256, bytes * room, sum)?;
            gpu.launch("move_codewords", (1, 1), 512, 0, go)
        }
    }

    /// From the codes to everything that draws need.
    fn build_lists(&self, gpu: &Gpu, run: &mut Run) -> Result<()> {
        let n_tiles = self.n_items.div_ceil(TILE) as u32;
        // The last codebook first: a stable sort by each code orders the items by both.
        self.sort(gpu, run, 1, 0, self.other_list, n_tiles)?;
        self.sort(gpu, run, 0, self.other_list, run.list, n_tiles)?;
        let grid = (self.n_items as u32).div_ceil(256).min(gpu.multiprocessors * 8);
        let slots = run.n_slots.div_ceil(64);
        let (mut missing, mut spare) = (self.missing, self.spare);
        let mut copy = *run;
        let own = &mut [(&raw mut copy).cast()];
        let cells = &mut [(&raw mut copy).cast(), (&raw mut missing).cast(), (&raw mut spare).cast()];
        // SAFETY: the arguments of each kernel.
        unsafe {
            gpu.launch("clear_spans", (slots, 1), 64, 0, own)?;
            gpu.launch("find_spans", (grid, 1), 256, 0, own)?;
            gpu.launch("measure_spans", (grid, 1), 256, 0, own)?;
            gpu.launch("fill_cells", (run.n_slots, 1), 256, 0, cells)?;
        }
        // A cell of more items than one word can choose among needs as many in all.
        if !one_word(self.n_items) {
            let mut spans = vec![[0u32; 2]; run.n_slots as usize];
            gpu.read(run.spans, &mut spans)?;
            run.one_word = u32::from(spans.iter().all(|span| one_word(span[1] as usize)));
        }
        Ok(())
    }

    /// Sorts `from` (0: all items in order) by the codes of one codebook, stably, into `to`.
    fn sort(
        &self,
        gpu: &Gpu,
        run: &Run,
        book: usize,
        from: Pointer,
        to: Pointer,
        n_tiles: u32,
    ) -> Result<()> {
        let (mut run, mut from, mut to, mut counts, mut n_tiles) = (*run, from, to, self.counts, n_tiles);
        let mut codes = after::<u8>(run.codes, book * self.n_items);
        let mut n = run.n_codewords * n_tiles;
        let count = &mut [
            (&raw mut run).cast(),
            (&raw mut codes).cast(),
            (&raw mut from).cast(),
            (&raw mut counts).cast(),
            (&raw mut n_tiles).cast(),
        ];
        let scan = &mut [(&raw mut counts).cast(), (&raw mut n).cast()];
        let place = &mut [
            (&raw mut run).cast(),
            (&raw mut codes).cast(),
            (&raw mut from).cast(),
            (&raw mut counts).cast(),
            (&raw mut n_tiles).cast(),
            (&raw mut to).cast(),
        ];
        let tiles = self.n_items.div_ceil(TILE) as u32;
        // SAFETY: the arguments of each kernel.
        unsafe {
            gpu.launch("count_codes", (tiles, 1), 32, 0, count)?;
            gpu.launch("scan_counts", (1, 1), 1024, 0, scan)?;
            gpu.launch("place_codes", (tiles, 1), 32, 0, place)
        }
    }
}
