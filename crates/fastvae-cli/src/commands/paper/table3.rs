//! Table 3: what drawing negatives costs, against the number of items, dimensions, codewords and draws.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use fastvae::Config;
use fastvae::config::ProposalKind;
use fastvae::internals::math::{Purpose, Stream};
use fastvae::internals::network::Parameters;
use fastvae::internals::proposal::{Draws, Scratch, build};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::curve::mark;
use super::page::{Finding, Page, Table, Verdict};
use super::session::{Session, stop_if_asked};
use crate::plot::{Figure, Panel, Scale, Series};

/// Proposals, and what the paper says a query with its draws takes.
const PROPOSALS: [(ProposalKind, &str); 7] = [
    (ProposalKind::Uniform, "T"),
    (ProposalKind::Popularity, "T"),
    (ProposalKind::Dns, "B D T"),
    (ProposalKind::Kernel, "D² T log M"),
    (ProposalKind::MidxExact, "M D + T"),
    (ProposalKind::MidxUniform, "K D + K² + T"),
    (ProposalKind::MidxPopularity, "K D + K² + T"),
];
/// Queries timed together, and times that is repeated; the shortest counts.
const QUERIES: usize = 8;

/// The sizes of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Sizes {
    items: usize,
    dimensions: usize,
    codewords: usize,
    draws: usize,
}

const BASE: Sizes = Sizes { items: 40_000, dimensions: 32, codewords: 16, draws: 1000 };

/// One size that is varied.
struct Axis {
    name: &'static str,
    symbol: &'static str,
    values: [usize; 4],
    set: fn(&mut Sizes, usize),
}

const AXES: [Axis; 4] = [
    Axis {
        name: "items (M)",
        symbol: "M",
        values: [10_000, 40_000, 160_000, 640_000],
        set: |s, n| s.items = n,
    },
    Axis { name: "dimensions (D)", symbol: "D", values: [16, 32, 64, 128], set: |s, n| s.dimensions = n },
    Axis { name: "codewords (K)", symbol: "K", values: [8, 16, 32, 64], set: |s, n| s.codewords = n },
    Axis { name: "draws (T)", symbol: "T", values: [250, 1000, 4000, 16_000], set: |s, n| s.draws = n },
];

/// The page.
///
/// # Errors
/// What building a proposal reports.
pub fn page(session: &Session) -> Result<Page> {
    let repeats = session.effort.choose(40, 8);
    let mut table = Table::new(&["proposal", "stated", "M", "D", "K", "T", "base, µs"]);
    let mut numbers = Table::new(&["proposal", "M", "D", "K", "T", "seconds"]);
    let mut times = Vec::new();
    for (kind, stated) in PROPOSALS {
        let name = kind.name();
        let task = json!({ "proposal": name, "repeats": repeats });
        let of_kind: Vec<[f64; 4]> =
            session.remembered(&format!("sampling-{name}"), task, || measured(kind, repeats))?;
        for (axis, seconds) in AXES.iter().zip(&of_kind) {
            for (&value, &seconds) in axis.values.iter().zip(seconds) {
                let s = sizes(axis, value);
                let fields = [s.items, s.dimensions, s.codewords, s.draws].map(|n| n.to_string()).into_iter();
                numbers
                    .push(std::iter::once(name.to_string()).chain(fields).chain([format!("{seconds:.3e}")]));
            }
        }
        let exponents = exponents(&of_kind);
        let base = format!("{:.1}", 1e6 * of_kind[3][1]);
        let fields = exponents.map(|exponent| format!("{exponent:.2}")).into_iter().chain([base]);
        table.push([name.to_string(), stated.to_string()].into_iter().chain(fields));
        times.push((name, of_kind));
    }
    let panels = AXES.iter().enumerate().map(|(at, axis)| panel(axis, at, &times)).collect();
    Ok(Page {
        id: "table3",
        title: "Table 3: cost of drawing negatives",
        method: format!(
            "One query and its draws on one thread, the shortest of {repeats} times; M = {}, D = {}, K = {}, T = {} but for \
             the size that is varied. Columns M to T are the measured exponents: time grows as the size to this power.",
            BASE.items, BASE.dimensions, BASE.codewords, BASE.draws
        ),
        table,
        numbers,
        plot: Some(Figure { title: "Cost of drawing negatives for one query".into(), panels }.svg()?),
        findings: findings(&times),
    })
}

fn sizes(axis: &Axis, value: usize) -> Sizes {
    let mut sizes = BASE;
    (axis.set)(&mut sizes, value);
    sizes
}

/// Seconds of a query, for the values of each axis.
fn measured(kind: ProposalKind, repeats: usize) -> Result<Vec<[f64; 4]>> {
    AXES.iter()
        .map(|axis| {
            let mut seconds = [0.0; 4];
            for (seconds, value) in seconds.iter_mut().zip(axis.values) {
                stop_if_asked()?;
                *seconds = seconds_of_a_query(kind, sizes(axis, value), repeats)?;
            }
            Ok(seconds)
        })
        .collect()
}

fn seconds_of_a_query(kind: ProposalKind, sizes: Sizes, repeats: usize) -> Result<f64> {
    let config = Config {
        proposal: kind,
        latent: sizes.dimensions,
        hidden: 1,
        codewords: sizes.codewords,
        ..Config::paper()
    };
    let mut parameters = Parameters::random(&config, sizes.items);
    // Vectors about as long as those of a trained model: random ones are so short that all items look alike.
    let scale = (sizes.items as f32 / 2.0).sqrt() / (sizes.dimensions as f32).sqrt();
    parameters.items.data_mut().iter_mut().for_each(|value| *value *= scale);
    let counts: Vec<u32> = (0..sizes.items as u32).map(|item| 1 + 100_000 / (item + 1)).collect();
    let items = parameters.item_table();
    let mut proposal = build(&config, &counts)?;
    proposal.refresh(items, 0, 0)?;
    let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
    let mut best = f64::INFINITY;
    for repeat in 0..repeats {
        let clock = Instant::now();
        for query in 0..QUERIES {
            // Some item's vector is a query like others.
            let row = (repeat * QUERIES + query) * 7919 % sizes.items;
            let query = &items.vectors.row(row)[..sizes.dimensions];
            let stream = Stream::new(0, Purpose::Negatives, 0, row as u32);
            proposal.prepare(query, items, &mut scratch);
            proposal.draw(sizes.draws, query, items, &stream, &mut scratch, &mut draws);
            black_box(&draws);
        }
        best = best.min(clock.elapsed().as_secs_f64() / QUERIES as f64);
    }
    Ok(best)
}

/// The exponent on each axis.
fn exponents(times: &[[f64; 4]]) -> [f64; 4] {
    std::array::from_fn(|axis| {
        let x = AXES[axis].values.map(|value| (value as f64).ln());
        exponent(&x, &times[axis].map(f64::ln))
    })
}

/// The slope of the straight line through (x, y) with the least squares.
fn exponent(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let covariance: f64 = x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    covariance / x.iter().map(|x| (x - mean_x).powi(2)).sum::<f64>()
}

fn panel(axis: &Axis, at: usize, times: &[(&'static str, Vec<[f64; 4]>)]) -> Panel {
    Panel {
        title: axis.symbol.to_string(),
        x: axis.name.to_string(),
        y: "microseconds a query".into(),
        x_scale: Scale::Log,
        y_scale: Scale::Log,
        x_ticks: Some(axis.values.map(|value| value as f64).to_vec()),
        series: times
            .iter()
            .enumerate()
            .map(|(place, (name, seconds))| Series {
                name: name.to_string(),
                colour: place,
                mark: mark(place),
                points: axis.values.iter().zip(seconds[at]).map(|(&v, s)| (v as f64, 1e6 * s)).collect(),
            })
            .collect(),
    }
}

fn findings(times: &[(&'static str, Vec<[f64; 4]>)]) -> Vec<Finding> {
    let of = |name: &str| {
        let found = times.iter().find(|(own, _)| *own == name);
        exponents(&found.expect("every proposal is measured").1)
    };
    let list = |names: &[&str], axis: usize| {
        names.iter().map(|name| format!("{name} {:.2}", of(name)[axis])).collect::<Vec<_>>().join(", ")
    };
    let sublinear = ["uniform", "popularity", "dns", "kernel", "midx-uniform", "midx-popularity"];
    let midx = ["midx-uniform", "midx-popularity"];
    let slowest =
        |name: &str| times.iter().find(|(own, _)| *own == name).map_or(0.0, |(_, seconds)| seconds[0][3]);
    vec![
        Finding {
            claim: "Only the exact MIDX takes time proportional to the catalogue.",
            // Memory that no longer fits into a cache shows as a small power.
            verdict: Verdict::of(
                sublinear.iter().map(|name| of(name)[0] < 0.35).chain([of("midx-exact")[0] > 0.7]),
            ),
            evidence: format!("Exponents of M: {}; {}.", list(&["midx-exact"], 0), list(&sublinear, 0)),
        },
        Finding {
            claim: "MIDX grows with K at most as K², and with T at most as T.",
            verdict: Verdict::of(midx.iter().flat_map(|name| [of(name)[2] < 2.05, of(name)[3] < 1.1])),
            evidence: format!("Exponents of K: {}; of T: {}.", list(&midx, 2), list(&midx, 3)),
        },
        Finding {
            claim: "Kernel grows with D faster than MIDX does.",
            verdict: Verdict::of(midx.iter().map(|name| of("kernel")[1] > of(name)[1])),
            evidence: format!("Exponents of D: {}; {}.", list(&["kernel"], 1), list(&midx, 1)),
        },
        Finding {
            claim: "The approximate MIDX proposals cost less than kernel and the exact MIDX at many items.",
            verdict: Verdict::of(
                midx.iter()
                    .flat_map(|own| ["kernel", "midx-exact"].map(|other| slowest(own) < slowest(other))),
            ),
            evidence: format!(
                "At {} items: {}.",
                AXES[0].values[3],
                times
                    .iter()
                    .map(|(name, _)| format!("{name} {:.0} µs", 1e6 * slowest(name)))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_powers() {
        let x = [1.0f64, 2.0, 4.0, 8.0].map(f64::ln);
        assert!((exponent(&x, &x.map(|x| 0.3 + 1.5 * x)) - 1.5).abs() < 1e-12);
        assert!(exponent(&x, &[2.0; 4]).abs() < 1e-12);
    }

    #[test]
    fn every_axis_passes_through_the_base() {
        for axis in &AXES {
            assert_eq!(sizes(axis, axis.values[1]), BASE, "{}", axis.name);
        }
    }
}
