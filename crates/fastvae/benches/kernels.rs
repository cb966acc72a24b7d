//! The kernels under training, drawing, evaluation and reading: `cargo bench -p fastvae [-- FILTER]`.
//!
//! Times of a busy machine mean little; compare rows of one run. `FASTVAE_SIMD=avx2|portable` forces an
//! instruction set. Whole epochs, and other libraries beside them, are in `benchmarks/speed`.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::OnceLock;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, Divan};
use fastvae::Config;
use fastvae::config::{ProposalKind, Quantizer};
use fastvae::data::{GenerateOptions, Interactions, ReadOptions, Split, generate, read};
use fastvae::eval::{Measure, Metric};
use fastvae::internals::data::{Cache, TableWriter};
use fastvae::internals::eval::evaluate;
use fastvae::internals::index::{IndexSettings, InvertedMultiIndex};
use fastvae::internals::math::{ByteMatrix, Matrix, Purpose, Stream, dots, simd};
use fastvae::internals::network::Parameters;
use fastvae::internals::proposal::{Draws, ItemTable, Scratch, build};

fn main() {
    eprintln!("instruction set: {}", simd::level_name());
    Divan::from_args().main();
}

/// `rows x cols` values within ±0.35.
fn random(rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    let mut words = vec![0; cols];
    for row in 0..rows {
        Stream::new(1, Purpose::Initialise, 0, row as u32).fill(0, &mut words);
        for (x, word) in matrix.row_mut(row).iter_mut().zip(&words) {
            *x = (*word as f32 / u32::MAX as f32 - 0.5) * 0.7;
        }
    }
    matrix
}

#[divan::bench(args = [32, 64, 256])]
fn dot(bencher: Bencher, dim: usize) {
    let rows = random(2, dim);
    bencher.counter(ItemsCount::new(1u32)).bench_local(|| simd::dot(black_box(rows.row(0)), rows.row(1)));
}

/// Inner products of one query with rows scattered over a table that does not fit the processor's caches.
#[divan::bench(args = [10_000, 1_000_000])]
fn gather_dot(bencher: Bencher, n_items: usize) {
    const DRAWS: usize = 1000;
    let (table, query) = (random(n_items, 32), random(1, 32));
    let mut stream = Stream::new(2, Purpose::Negatives, 0, 0);
    let items: Vec<usize> = (0..DRAWS).map(|_| stream.below(n_items as u64) as usize).collect();
    bencher
        .counter(ItemsCount::new(DRAWS))
        .bench_local(|| items.iter().map(|&item| simd::dot(table.row(item), query.row(0))).sum::<f32>());
}

#[divan::bench(args = [10_000, 100_000])]
fn row_dots(bencher: Bencher, n_items: usize) {
    let (table, query) = (random(n_items, 32), random(1, 32));
    let mut out = vec![0.0; n_items];
    bencher
        .counter(ItemsCount::new(n_items))
        .bench_local(|| dots::row_dots(table.view(), query.row(0), black_box(&mut out)));
}

/// As [`row_dots`], sixteen rows at a time.
#[divan::bench(args = [32, 256])]
fn block_dots(bencher: Bencher, dim: usize) {
    let (table, query) = (random(10_000, dim), random(1, dim));
    let mut out = vec![0.0; 10_000];
    bencher
        .counter(ItemsCount::new(10_000u32))
        .bench_local(|| dots::block_dots(table.view(), &query.row(0)[..dim], black_box(&mut out)));
}

/// As [`block_dots`], over vectors of bytes.
#[divan::bench(args = [32, 256])]
fn byte_dots(bencher: Bencher, dim: usize) {
    let (table, query) = (ByteMatrix::nearest(random(10_000, dim).view()), random(1, dim));
    let mut out = vec![0.0; 10_000];
    bencher
        .counter(ItemsCount::new(10_000u32))
        .bench_local(|| table.dots(0, &query.row(0)[..dim], black_box(&mut out)));
}

#[divan::bench(args = [1_000, 40_000])]
fn exp(bencher: Bencher, n: usize) {
    let logits = random(1, n);
    bencher
        .counter(ItemsCount::new(n))
        .with_inputs(|| logits.row(0).to_vec())
        .bench_local_refs(|values| simd::exp_shifted(values, 0.35));
}

#[divan::bench]
fn normals(bencher: Bencher) {
    let mut out = vec![0.0; 4096];
    let stream = Stream::new(1, Purpose::Latent, 0, 0);
    bencher
        .counter(ItemsCount::new(4096u32))
        .bench_local(|| simd::fill_normals(&stream, black_box(&mut out)));
}

/// A query with its 200 draws, by kind of proposal and catalogue.
mod draws {
    use super::*;

    const NEGATIVES: usize = 200;

    fn draw(bencher: Bencher, kind: ProposalKind, n_items: usize) {
        let vectors = random(n_items, 32);
        let queries = random(64, 32);
        let counts: Vec<u32> = (0..n_items as u32).map(|item| 100_000 / (item + 1)).collect();
        let items = ItemTable { vectors: vectors.view(), bias: None };
        let config = Config { proposal: kind, latent: 32, codewords: 16, ..Config::default() };
        let mut proposal = build(&config, &counts).unwrap();
        proposal.refresh(items, 0, 0).unwrap();
        let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
        let mut user = 0;
        bencher.counter(ItemsCount::new(NEGATIVES)).bench_local(|| {
            user = (user + 1) % queries.rows();
            let stream = Stream::new(1, Purpose::Negatives, 0, user as u32);
            proposal.prepare(queries.row(user), items, &mut scratch);
            proposal.draw(NEGATIVES, queries.row(user), items, &stream, &mut scratch, &mut draws);
            black_box(&draws);
        });
    }

    macro_rules! proposals {
        ($($name:ident: $kind:ident, $sizes:expr;)*) => {
            $(#[divan::bench(args = $sizes)]
            fn $name(bencher: Bencher, n_items: usize) {
                draw(bencher, ProposalKind::$kind, n_items);
            })*
        };
    }

    // Kinds that are linear in the catalogue, in time or in memory, stop at the sizes of real benchmarks.
    proposals! {
        uniform: Uniform, [10_000, 100_000, 1_000_000];
        popularity: Popularity, [10_000, 100_000, 1_000_000];
        dns: Dns, [10_000, 100_000, 1_000_000];
        midx_uniform: MidxUniform, [10_000, 100_000, 1_000_000];
        midx_popularity: MidxPopularity, [10_000, 100_000, 1_000_000];
        midx_exact: MidxExact, [10_000, 100_000];
        softmax: Softmax, [10_000, 100_000];
        kernel: Kernel, [10_000];
    }
}

/// A refresh of the index by k-means from the codewords of the last one.
#[divan::bench(args = [10_000, 100_000, 1_000_000], sample_count = 10, sample_size = 1)]
fn index_refresh(bencher: Bencher, n_items: usize) {
    let vectors = random(n_items, 32);
    let settings = IndexSettings { quantizer: Quantizer::Product, n_codebooks: 2, n_codewords: 16 };
    let first = InvertedMultiIndex::build(vectors.view(), settings, None, 1, 0).unwrap();
    bencher
        .counter(ItemsCount::new(n_items))
        .bench_local(|| InvertedMultiIndex::build(vectors.view(), settings, Some(&first), 1, 1).unwrap());
}

fn interactions() -> &'static Interactions {
    static DATA: OnceLock<Interactions> = OnceLock::new();
    DATA.get_or_init(|| {
        let options =
            GenerateOptions { users: 20_000, items: 20_000, interactions: 1_000_000, ..Default::default() };
        generate(options).unwrap()
    })
}

/// Ranking of the whole catalogue for 2,000 users.
#[divan::bench(args = [32, 256], sample_count = 5, sample_size = 1)]
fn top_k_evaluation(bencher: Bencher, latent: usize) {
    let users: Vec<u32> = (0..2000).collect();
    let data = interactions().select_users(&users).unwrap();
    let parts = Split::Ratio(0.8).apply(&data, 1).unwrap();
    let config = Config { hidden: 64, latent, ..Config::default() };
    let parameters = Parameters::random(&config, data.n_items());
    let network = parameters.network(config.activation);
    let metrics = Metric::grid(&[Measure::Ndcg, Measure::Recall], &[50, 100]);
    bencher
        .counter(ItemsCount::new(users.len() * data.n_items()))
        .bench_local(|| evaluate(network, &parts.train, &parts.test, &metrics).unwrap());
}

/// One million interactions from each format.
mod reading {
    use super::*;

    fn file(name: &str, write: impl FnOnce(&PathBuf)) -> PathBuf {
        static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
        let path = FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path().join(name);
        if !path.exists() {
            write(&path);
        }
        path
    }

    fn text(path: &PathBuf) {
        let mut table = TableWriter::create(path).unwrap();
        let data = interactions();
        for user in 0..data.n_users() {
            for &item in data.row(user).items {
                table.pair(user as u64, u64::from(item)).unwrap();
            }
        }
        table.finish().unwrap();
    }

    fn timed(bencher: Bencher, path: &PathBuf) {
        let size = std::fs::metadata(path).unwrap().len();
        bencher
            .counter(BytesCount::new(size))
            .counter(ItemsCount::new(interactions().n_interactions()))
            .bench_local(|| read(path, &ReadOptions::default()).unwrap());
    }

    #[divan::bench(sample_count = 10, sample_size = 1)]
    fn csv(bencher: Bencher) {
        timed(bencher, &file("data.csv", text));
    }

    #[divan::bench(sample_count = 10, sample_size = 1)]
    fn tsv_zst(bencher: Bencher) {
        timed(bencher, &file("data.tsv.zst", text));
    }

    #[cfg(feature = "parquet")]
    #[divan::bench(sample_count = 10, sample_size = 1)]
    fn parquet(bencher: Bencher) {
        timed(bencher, &file("data.parquet", |path| parquet_file::write(path, interactions())));
    }

    #[divan::bench(sample_count = 20, sample_size = 1)]
    fn cache(bencher: Bencher) {
        timed(bencher, &file("data.fvcache", |path| Cache::write(path, interactions(), None).unwrap()));
    }
}

/// Interactions as Parquet, for the reader.
#[cfg(feature = "parquet")]
mod parquet_file {
    use std::path::Path;
    use std::sync::Arc;

    use fastvae::data::Interactions;
    use parquet::data_type::Int64Type;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    pub(super) fn write(path: &Path, data: &Interactions) {
        let schema =
            parse_message_type("message m { REQUIRED INT64 user_id; REQUIRED INT64 item_id; }").unwrap();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
        let users = data.offsets().windows(2).enumerate();
        let users =
            users.flat_map(|(user, span)| std::iter::repeat_n(user as i64, span[1] - span[0])).collect();
        let items: Vec<i64> = data.items().iter().map(|&item| i64::from(item)).collect();
        let mut group = writer.next_row_group().unwrap();
        for values in [users, items] {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&values, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }
}
