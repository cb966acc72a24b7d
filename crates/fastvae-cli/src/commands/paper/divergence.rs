//! Figure 2: cumulative probabilities of the proposals against the softmax.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::ProposalKind;
use fastvae::data::{ItemId, UserId};
use fastvae::internals::math::{Purpose, Stream, dots, simd};
use fastvae::internals::network::{Parameters, encode};
use fastvae::internals::proposal::{Draws, ItemTable, Scratch, build};
use fastvae::internals::train::TrainingInternals;
use fastvae::train::{TrainOptions, Training};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::datasets::{ML10M, Trial};
use super::page::{Finding, Page, Table, Verdict};
use super::session::{Session, stop_if_asked};
use crate::fit::fit_quietly;
use crate::plot::{Figure, Mark, Panel, Scale, Series};

const CODEWORDS: usize = 64;
const DRAWS: usize = 100_000;
/// Users over whom divergences are averaged; the first is the one that is plotted.
const USERS: usize = 16;
/// Points of a plotted line.
const POINTS: usize = 200;
/// The softmax comes first: the others lie on top of it.
const PROPOSALS: [ProposalKind; 8] = [
    ProposalKind::Softmax,
    ProposalKind::MidxExact,
    ProposalKind::MidxUniform,
    ProposalKind::MidxPopularity,
    ProposalKind::Uniform,
    ProposalKind::Popularity,
    ProposalKind::Kernel,
    ProposalKind::Dns,
];

/// One proposal for one model.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Measured {
    proposal: String,
    /// KL(Q || softmax) in nats, of the plotted user.
    divergence: f64,
    /// The mean over users.
    mean_divergence: f64,
    /// Share of the draws among the least popular items, at evenly spaced shares of the catalogue up to all of it.
    cumulative: Vec<f64>,
}

impl Measured {
    /// The largest distance between two curves.
    fn distance(&self, other: &Self) -> f64 {
        let pairs = self.cumulative.iter().zip(&other.cumulative);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }
}

/// The page.
///
/// # Errors
/// What training reports.
pub fn page(session: &Session) -> Result<Page> {
    let trial = ML10M.trial(&session.data, 0)?;
    let start = session.effort.config();
    let epochs = session.effort.choose(start.epochs, 30);
    let config = Config { negatives: ML10M.negatives, epochs, seed: trial.seed, ..start };
    let of = |name: &str, parameters: &dyn Fn() -> Result<Parameters>| {
        let task = json!({
            "data": trial.fingerprint(), "config": config, "model": name, "codewords": CODEWORDS, "draws": DRAWS,
            "users": USERS,
        });
        session.remembered(&format!("divergence-{name}"), task, || measured(&trial, &config, &parameters()?))
    };
    let random = of("random", &|| Ok(Parameters::random(&config, trial.train.n_items())))?;
    let trained = of("trained", &|| trained(&trial, &config))?;
    let panels = vec![
        panel("Randomly initialised", &random, trial.train.n_items()),
        panel("Trained", &trained, trial.train.n_items()),
    ];
    let (table, numbers) = tables(&random, &trained, trial.train.n_items());
    Ok(Page {
        id: "fig-divergence",
        title: "Figure 2: cumulative probability of the proposals",
        method: format!(
            "ML10M, one user, {DRAWS} draws, {CODEWORDS} codewords; the model is random, or trained for {epochs} epochs. \
             Items stand by popularity, the least popular first. Divergences are KL(Q || softmax), exact over the \
             catalogue, of that user; in the table also the mean over {USERS} users."
        ),
        table,
        numbers,
        plot: Some(Figure { title: "Proposals against the softmax, ML10M".into(), panels }.svg()?),
        findings: findings(&random, &trained),
    })
}

fn trained(trial: &Trial, config: &Config) -> Result<Parameters> {
    let config = Config { threads: rayon::current_num_threads(), ..config.clone() };
    let mut training = Training::new(trial.train.clone(), &config, TrainOptions::default())?;
    fit_quietly(&mut training, |_, _| Ok(()))?;
    Ok(training.parameters()?.clone())
}

fn measured(trial: &Trial, config: &Config, parameters: &Parameters) -> Result<Vec<Measured>> {
    let data = &trial.train;
    let mut stream = Stream::new(config.seed, Purpose::Diagnostics, 0, 0);
    let users: Vec<UserId> = (0..USERS).map(|_| stream.below(data.n_users() as u64) as UserId).collect();
    let queries =
        encode(parameters.network(config.activation), USERS, |row| data.row(users[row] as usize).into());
    let counts = data.item_counts();
    let mut order: Vec<ItemId> = (0..data.n_items() as ItemId).collect();
    order.sort_by_key(|&item| (counts[item as usize], item));
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &item)| rank[item as usize] = at);
    let items = parameters.item_table();
    PROPOSALS
        .into_iter()
        .map(|kind| {
            stop_if_asked()?;
            let settings =
                Config { proposal: kind, codewords: CODEWORDS.min(data.n_items()), ..config.clone() };
            let mut proposal = build(&settings, &counts)?;
            proposal.refresh(items, config.seed, 0)?;
            let (mut scratch, mut draws) = (Scratch::default(), Draws::default());
            let mut divergences = Vec::new();
            for row in 0..USERS {
                let query = &queries.row(row)[..config.latent];
                proposal.prepare(query, items, &mut scratch);
                let mut log_q = vec![0.0; data.n_items()];
                let all: Vec<ItemId> = (0..data.n_items() as ItemId).collect();
                proposal.log_q(&all, query, items, &mut scratch, &mut log_q);
                divergences.push(divergence(&log_q, query, items));
            }
            let query = &queries.row(0)[..config.latent];
            let stream = Stream::new(config.seed, Purpose::Diagnostics, 1, kind as u32);
            proposal.prepare(query, items, &mut scratch);
            proposal.draw(DRAWS, query, items, &stream, &mut scratch, &mut draws);
            let mut histogram = vec![0u32; data.n_items()];
            draws.items.iter().for_each(|&item| histogram[rank[item as usize]] += 1);
            Ok(Measured {
                proposal: kind.name().to_string(),
                divergence: divergences[0],
                mean_divergence: divergences.iter().sum::<f64>() / USERS as f64,
                cumulative: cumulative(&histogram),
            })
        })
        .collect()
}

/// KL(Q || softmax) in nats.
fn divergence(log_q: &[f32], query: &[f32], items: ItemTable<'_>) -> f64 {
    let mut logits = vec![0.0; log_q.len()];
    dots::row_dots(items.vectors, query, &mut logits);
    if let Some(bias) = items.bias {
        simd::axpy(1.0, bias, &mut logits);
    }
    let top = f64::from(simd::max(&logits));
    let log_sum = top + logits.iter().map(|&logit| (f64::from(logit) - top).exp()).sum::<f64>().ln();
    let terms = log_q.iter().zip(&logits).filter(|(q, _)| q.is_finite());
    let sum: f64 =
        terms.map(|(&q, &logit)| f64::from(q).exp() * (f64::from(q) - (f64::from(logit) - log_sum))).sum();
    sum.max(0.0)
}

/// The share of `histogram` below each of [`POINTS`] evenly spaced places.
fn cumulative(histogram: &[u32]) -> Vec<f64> {
    let total: u64 = histogram.iter().map(|&n| u64::from(n)).sum();
    let (mut sum, mut next) = (0u64, 0);
    (1..=POINTS)
        .map(|point| {
            let end = histogram.len() * point / POINTS;
            sum += histogram[next..end].iter().map(|&n| u64::from(n)).sum::<u64>();
            next = end;
            sum as f64 / total.max(1) as f64
        })
        .collect()
}

fn panel(title: &str, measured: &[Measured], n_items: usize) -> Panel {
    let series = |(at, line): (usize, &Measured)| Series {
        name: match line.proposal.as_str() {
            "softmax" => "softmax".to_string(),
            name => format!("{name}, KL {}", short(line.divergence)),
        },
        // Black for the softmax, and for the rest the palette's order.
        colour: if at == 0 { 7 } else { [6, 0, 1, 2, 3, 4, 5][(at - 1) % 7] },
        mark: match at {
            0 => Mark::Broad,
            1 => Mark::Dashed,
            _ => Mark::Plain,
        },
        points: std::iter::once((0.0, 0.0))
            .chain(
                line.cumulative
                    .iter()
                    .enumerate()
                    .map(|(at, &share)| ((n_items * (at + 1) / POINTS) as f64, share)),
            )
            .collect(),
    };
    Panel {
        title: title.to_string(),
        x: "items, least popular first".into(),
        y: "cumulative probability".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        x_ticks: None,
        series: measured.iter().enumerate().map(series).collect(),
    }
}

fn short(value: f64) -> String {
    if value < 0.0005 { "0.000".to_string() } else { format!("{value:.3}") }
}

fn tables(random: &[Measured], trained: &[Measured], n_items: usize) -> (Table, Table) {
    let mut table = Table::new(&[
        "proposal",
        "KL, random",
        "mean over users",
        "KL, trained",
        "mean over users",
        "distance of the curves, trained",
    ]);
    for (a, b) in random.iter().zip(trained) {
        let values = [a.divergence, a.mean_divergence, b.divergence, b.mean_divergence];
        let distance = format!("{:.4}", b.distance(&trained[0]));
        let fields = values.map(|value| format!("{value:.4}")).into_iter().chain([distance]);
        table.push(std::iter::once(a.proposal.clone()).chain(fields));
    }
    let mut numbers = Table::new(&["model", "proposal", "items", "cumulative_probability", "kl", "mean_kl"]);
    for (model, lines) in [("random", random), ("trained", trained)] {
        for line in lines {
            for (at, share) in line.cumulative.iter().enumerate() {
                numbers.push([
                    model.to_string(),
                    line.proposal.clone(),
                    (n_items * (at + 1) / POINTS).to_string(),
                    share.to_string(),
                    line.divergence.to_string(),
                    line.mean_divergence.to_string(),
                ]);
            }
        }
    }
    (table, numbers)
}

fn findings(random: &[Measured], trained: &[Measured]) -> Vec<Finding> {
    let of = |lines: &[Measured], name: &str| -> Measured {
        lines.iter().find(|line| line.proposal == name).expect("every proposal is measured").clone()
    };
    let mean = |name: &str| of(trained, name).mean_divergence;
    let exact = [random, trained].map(|lines| of(lines, "midx-exact"));
    let distances = [random, trained].map(|lines| of(lines, "midx-exact").distance(&of(lines, "softmax")));
    let others = ["uniform", "popularity", "kernel", "dns"];
    let midx = ["midx-uniform", "midx-popularity"];
    let closer = midx.iter().flat_map(|own| others.map(|other| mean(own) < mean(other)));
    let spread = |lines: &[Measured]| of(lines, "midx-uniform").distance(&of(lines, "uniform"));
    vec![
        Finding {
            claim: "The exact MIDX proposal is the softmax.",
            // Two samples of 100,000 differ by up to 1.63 sqrt(2 / n) = 0.0073 in 99 of 100 cases
            // (Kolmogorov and Smirnov).
            verdict: Verdict::of(
                exact
                    .iter()
                    .zip(distances)
                    .map(|(line, distance)| line.mean_divergence < 1e-3 && distance < 0.0073),
            ),
            evidence: format!(
                "Divergence {:.1e} (random) and {:.1e} (trained); the curves of {DRAWS} draws differ by {:.4} and {:.4} \
                 at most, where two samples of one distribution differ by up to 0.0073.",
                exact[0].mean_divergence, exact[1].mean_divergence, distances[0], distances[1]
            ),
        },
        Finding {
            claim: "For a trained model, MIDX is much closer to the softmax than kernel, DNS and the static proposals.",
            verdict: Verdict::of(closer),
            evidence: format!(
                "Mean divergence: {}.",
                midx.iter()
                    .chain(&others)
                    .map(|name| format!("{name} {:.3}", mean(name)))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        },
        Finding {
            claim: "midx-uniform is a little less accurate than midx-popularity.",
            verdict: Verdict::of([mean("midx-uniform") > mean("midx-popularity")]),
            evidence: format!("{:.4} against {:.4}.", mean("midx-uniform"), mean("midx-popularity")),
        },
        Finding {
            claim: "MIDX follows the model: near the static proposals for a random one, apart from them once trained.",
            verdict: Verdict::of([spread(trained) > 2.0 * spread(random)]),
            evidence: format!(
                "Largest distance between the curves of midx-uniform and uniform: {:.3} (random), {:.3} (trained).",
                spread(random),
                spread(trained)
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cumulative_shares_end_at_one_and_never_fall() {
        let histogram: Vec<u32> = (0..517).map(|at| at % 7).collect();
        let shares = cumulative(&histogram);
        assert_eq!(shares.len(), POINTS);
        assert!(shares.is_sorted() && shares[POINTS - 1] == 1.0);
        let half: u32 = histogram[..517 / 2].iter().sum();
        let all: u32 = histogram.iter().sum();
        assert!((shares[POINTS / 2 - 1] - f64::from(half) / f64::from(all)).abs() < 1e-12);
    }

    #[test]
    fn the_divergence_of_the_uniform_distribution_follows_its_definition() {
        let config = Config { latent: 4, ..Config::default() };
        let mut parameters = Parameters::random(&config, 6);
        parameters.items.data_mut().iter_mut().enumerate().for_each(|(at, v)| *v = (at % 5) as f32 * 0.3);
        let query = [0.5, -1.0, 2.0, 0.25];
        let items = parameters.item_table();
        let logits: Vec<f64> = (0..6)
            .map(|i| items.vectors.row(i).iter().zip(&query).map(|(a, b)| f64::from(a * b)).sum())
            .collect();
        let sum: f64 = logits.iter().map(|l| l.exp()).sum();
        let expected: f64 =
            logits.iter().map(|l| (1.0 / 6.0) * ((1.0f64 / 6.0).ln() - (l.exp() / sum).ln())).sum();
        let got = divergence(&[(1.0f32 / 6.0).ln(); 6], &query, items);
        assert!((got - expected).abs() < 1e-5, "{got} {expected}");
    }
}
