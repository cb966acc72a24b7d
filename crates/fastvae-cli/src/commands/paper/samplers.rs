//! Figure 3: quality by epoch, for each proposal.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::{ModelKind, ProposalKind};

use super::curve::{self, Curve, Named};
use super::datasets::GOWALLA;
use super::page::{Finding, Page, Verdict};
use super::session::Session;
use crate::plot::Figure;

const MIDX: [&str; 2] = ["midx-uniform", "midx-popularity"];

/// The page.
///
/// # Errors
/// What training reports.
pub fn page(session: &Session) -> Result<Page> {
    let trial = GOWALLA.trial(&session.data, 0)?;
    let start = Config { negatives: GOWALLA.negatives, ..session.effort.config() };
    let mut named: Vec<(String, Config)> = [
        ProposalKind::MidxUniform,
        ProposalKind::MidxPopularity,
        ProposalKind::Uniform,
        ProposalKind::Popularity,
        ProposalKind::Kernel,
    ]
    .map(|proposal| (proposal.name().to_string(), Config { proposal, ..start.clone() }))
    .into();
    named.push(("mult-vae".to_string(), Config { model: ModelKind::MultVae, ..start.clone() }));
    let curves = curve::curves(session, &trial, named)?;
    Ok(Page {
        id: "fig-samplers",
        title: "Figure 3: effectiveness of the proposals",
        method: format!(
            "Gowalla, {} negatives, {} codewords, {} epochs at a learning rate of {}. mult-vae is the full softmax. Netflix, \
             the paper's second panel, is not at hand: for its time and memory see shapes.",
            start.negatives, start.codewords, start.epochs, start.learning_rate
        ),
        table: curve::table(&curves),
        numbers: curve::numbers(&curves),
        plot: Some(Figure { title: "Proposals on Gowalla".into(), panels: curve::panels(&curves) }.svg()?),
        findings: findings(&curves),
    })
}

fn findings(curves: &[Named]) -> Vec<Finding> {
    let of = |name: &str| -> &Curve {
        let found = curves.iter().find(|(own, _)| own == name);
        &found.expect("every proposal has its curve").1
    };
    // From the second test on: the first is nearly the start, which is the same for all.
    let ahead = |a: &str, b: &str| {
        let pairs = of(a).points.iter().zip(&of(b).points).skip(1);
        pairs.map(|(a, b)| a.ndcg > b.ndcg).collect::<Vec<_>>()
    };
    let last = |name: &str| of(name).last().ndcg;
    let at_kernels_end = |name: &str| of(name).at(of("kernel").last().epoch).ndcg;
    let statics: Vec<bool> = MIDX
        .iter()
        .flat_map(|midx| ["uniform", "popularity"].map(|other| ahead(midx, other)))
        .flatten()
        .collect();
    let n_ahead = statics.iter().filter(|case| **case).count();
    vec![
        Finding {
            claim: "MIDX converges faster than the static proposals and is ahead of them all the way.",
            evidence: format!(
                "Ahead in {n_ahead} of {} comparisons by NDCG@50. midx-popularity: {}; uniform: {}; popularity: {}.",
                statics.len(),
                curve::course(of("midx-popularity")),
                curve::course(of("uniform")),
                curve::course(of("popularity"))
            ),
            verdict: Verdict::of(statics),
        },
        Finding {
            claim: "The kernel proposal does badly (more than 1 % behind MIDX counts).",
            verdict: Verdict::of(MIDX.map(|midx| last("kernel") < 0.99 * at_kernels_end(midx))),
            evidence: format!(
                "{:.4} after epoch {}, against {:.4} (midx-uniform), {:.4} (midx-popularity) and {:.4} (uniform).",
                last("kernel"),
                of("kernel").last().epoch,
                at_kernels_end("midx-uniform"),
                at_kernels_end("midx-popularity"),
                at_kernels_end("uniform")
            ),
        },
        Finding {
            claim: "MIDX does as well as the full softmax.",
            verdict: Verdict::of(MIDX.map(|midx| last(midx) > 0.99 * last("mult-vae"))),
            evidence: format!(
                "{:.4} and {:.4} against {:.4}; within 1 % counts.",
                last("midx-uniform"),
                last("midx-popularity"),
                last("mult-vae")
            ),
        },
    ]
}
