//! Figure 5 (a): quality by the number of negatives.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::ProposalKind;

use super::curve;
use super::datasets::GOWALLA;
use super::page::{Finding, Page, Verdict};
use super::session::Session;
use crate::plot::Figure;

const NEGATIVES: [usize; 3] = [200, 1000, 5000];
const PROPOSALS: [ProposalKind; 2] = [ProposalKind::MidxUniform, ProposalKind::Uniform];

/// The page.
///
/// # Errors
/// What training reports.
pub fn page(session: &Session) -> Result<Page> {
    let trial = GOWALLA.trial(&session.data, 0)?;
    let start = session.effort.config();
    let named = PROPOSALS.into_iter().flat_map(|proposal| {
        NEGATIVES.map(|negatives| {
            let config = Config { proposal, negatives, ..start.clone() };
            (format!("{}, T = {negatives}", proposal.name()), config)
        })
    });
    let curves = curve::curves(session, &trial, named.collect())?;
    let last: Vec<f64> = curves.iter().map(|(_, curve)| curve.last().ndcg).collect();
    let (midx, uniform) = last.split_at(NEGATIVES.len());
    let line = |values: &[f64]| values.iter().map(|v| format!("{v:.4}")).collect::<Vec<_>>().join(", ");
    let gains: Vec<f64> = midx.iter().zip(uniform).map(|(midx, uniform)| midx / uniform - 1.0).collect();
    let findings = vec![
        Finding {
            claim: "More negatives make both proposals better.",
            verdict: Verdict::of(
                [midx, uniform].iter().flat_map(|v| v.windows(2).map(|pair| pair[1] > pair[0])),
            ),
            evidence: format!(
                "NDCG@50 at T = 200, 1000, 5000: {} (midx-uniform); {} (uniform).",
                line(midx),
                line(uniform)
            ),
        },
        Finding {
            claim: "MIDX is better even with few negatives, where it gains most.",
            verdict: Verdict::of([gains[0] > 0.0, gains[0] > gains[2]]),
            evidence: format!(
                "midx-uniform is ahead of uniform by {:+.1} %, {:+.1} % and {:+.1} %.",
                100.0 * gains[0],
                100.0 * gains[1],
                100.0 * gains[2]
            ),
        },
    ];
    Ok(Page {
        id: "fig-negatives",
        title: "Figure 5 (a): the number of negatives",
        method: format!(
            "Gowalla, {} codewords, {} epochs at a learning rate of {}.",
            start.codewords, start.epochs, start.learning_rate
        ),
        table: curve::table(&curves),
        numbers: curve::numbers(&curves),
        plot: Some(
            Figure { title: "Number of negatives, Gowalla".into(), panels: curve::panels(&curves) }.svg()?,
        ),
        findings,
    })
}
