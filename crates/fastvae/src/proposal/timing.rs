//! Times of queries, draws and refreshes, on demand:
//! `cargo test --release -p fastvae --lib timing -- --ignored --nocapture --test-threads 1`.

use std::hint::black_box;
use std::time::Instant;

use super::*;
use crate::config::Quantizer;
use crate::index::IndexSettings;
use crate::math::{Matrix, Purpose, Stream};

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

/// The shortest time of a few, in nanoseconds.
fn shortest(repeats: usize, mut work: impl FnMut()) -> f64 {
    (0..repeats)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64
        })
        .fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "measures time"]
fn timing_of_draws() {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let shapes =
        [(5_000, 32, 16, 200), (41_000, 32, 16, 1000), (41_000, 256, 32, 500), (1_000_000, 32, 16, 1000)];
    for (n_items, dim, codewords, negatives) in shapes {
        let vectors = random(n_items, dim);
        let queries = random(64, dim);
        let counts: Vec<u32> = (0..n_items as u32).map(|i| 100_000 / (i + 1)).collect();
        let items = ItemTable { vectors: vectors.view(), bias: None };
        for kind in [
            ProposalKind::Uniform,
            ProposalKind::Popularity,
            ProposalKind::MidxUniform,
            ProposalKind::MidxPopularity,
            ProposalKind::Dns,
            ProposalKind::Softmax,
            ProposalKind::MidxExact,
            ProposalKind::Kernel,
        ] {
            let config = Config { proposal: kind, latent: dim, codewords, ..Config::default() };
            let mut proposal = build(&config, &counts).unwrap();
            one.install(|| proposal.refresh(items, 0, 0)).unwrap();
            let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
            let (mut prepared, mut whole) = (f64::INFINITY, f64::INFINITY);
            // The shortest of single queries, since a longer stretch is interrupted on a busy machine.
            for user in (0..queries.rows()).cycle().take(if n_items > 100_000 { 128 } else { 640 }) {
                let query = &queries.row(user)[..dim];
                prepared = prepared.min(shortest(1, || {
                    proposal.prepare(query, items, &mut scratch);
                    black_box(&scratch);
                }));
                let stream = Stream::new(1, Purpose::Negatives, 0, user as u32);
                whole = whole.min(shortest(1, || {
                    proposal.prepare(query, items, &mut scratch);
                    proposal.draw(negatives, query, items, &stream, &mut scratch, &mut draws);
                    black_box(&draws);
                }));
            }
            println!(
                "M={n_items} D={dim} K={codewords} T={negatives} {kind:?}: {:.2} ns a draw, preparation {:.0} ns \
                 ({:.2} ns an item) of {whole:.0} ns a query",
                whole / negatives as f64,
                prepared,
                prepared / n_items as f64,
            );
            if kind == ProposalKind::Softmax && n_items > 100_000 {
                break;
            }
        }
    }
}

#[test]
#[ignore = "measures time"]
fn timing_of_refreshes() {
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        for (n_items, dim, n_codewords) in
            [(41_000, 32, 16), (41_000, 256, 32), (1_000_000, 32, 16), (200_000, 256, 32)]
        {
            let vectors = random(n_items, dim);
            for quantizer in [Quantizer::Product, Quantizer::Residual] {
                let settings = IndexSettings { quantizer, n_codebooks: 2, n_codewords };
                let mut index = None;
                let cold = shortest(2, || {
                    let built =
                        pool.install(|| InvertedMultiIndex::build(vectors.view(), settings, None, 0, 0));
                    index = built.ok();
                });
                let mut index = index.unwrap();
                let warm = shortest(3, || pool.install(|| index.refresh(vectors.view(), 0, 1)).unwrap());
                println!(
                    "M={n_items} D={dim} K={n_codewords} {quantizer:?}, {threads} threads: cold {:.1} ms, warm {:.1} ms",
                    cold / 1e6,
                    warm / 1e6
                );
            }
        }
    }
}

#[test]
#[ignore = "measures time"]
fn timing_of_the_parts_of_a_draw() {
    let n = 1000;
    let stream = Stream::new(1, Purpose::Negatives, 0, 0);
    let mut words = vec![0; n];
    let weights: Vec<f32> = (0..256).map(|i| (i % 7) as f32 + 0.5).collect();
    let (mut systematic, mut runs) = (Systematic::default(), Runs::default());
    let each = |name: &str, work: &mut dyn FnMut()| {
        let time = shortest(50, || (0..50).for_each(|_| work()));
        println!("{name}: {:.2} ns each of {n}", time / (50 * n) as f64);
    };
    each("random words", &mut || stream.fill(0, black_box(&mut words)));
    each("draws from 256 weights", &mut || {
        runs.clear();
        systematic.draw(&weights, None, n, &stream, black_box(&mut runs));
    });
    let vectors = random(n, 32);
    let items = ItemTable { vectors: vectors.view(), bias: None };
    let (mut padded, mut values) = (Vec::new(), vec![0.0; n]);
    each("logits", &mut || logits::logits(items, 0, vectors.row(3), &mut padded, black_box(&mut values)));
    each("maximum", &mut || {
        black_box(crate::math::simd::max(&values));
    });
    each("exponentials", &mut || {
        black_box(crate::math::simd::exp_shifted(&mut values, 0.1));
    });
}
