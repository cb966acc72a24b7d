//! Figure 5 (b): quality by the number of codewords.

use anyhow::Result;
use fastvae::Config;
use fastvae::config::ProposalKind;

use super::curve;
use super::datasets::GOWALLA;
use super::page::{Finding, Page, Verdict};
use super::session::Session;
use crate::plot::Figure;

const CODEWORDS: [usize; 5] = [8, 16, 32, 64, 128];

/// The page.
///
/// # Errors
/// What training reports.
pub fn page(session: &Session) -> Result<Page> {
    let trial = GOWALLA.trial(&session.data, 0)?;
    let start = Config { negatives: GOWALLA.negatives, ..session.effort.config() };
    let named = CODEWORDS.map(|codewords| {
        let config = Config { proposal: ProposalKind::MidxUniform, codewords, ..start.clone() };
        (format!("K = {codewords}"), config)
    });
    let curves = curve::curves(session, &trial, named.into())?;
    let early = |at: usize| curves[at].1.points[1];
    let last: Vec<f64> = curves.iter().map(|(_, curve)| curve.last().ndcg).collect();
    let (low, high) = last.iter().fold((f64::MAX, 0f64), |(low, high), v| (low.min(*v), high.max(*v)));
    let most = CODEWORDS.len() - 1;
    let findings = vec![
        Finding {
            claim: "With more codewords, midx-uniform does better in the first epochs.",
            verdict: Verdict::of([early(most).ndcg > early(0).ndcg]),
            evidence: format!(
                "NDCG@50 after epoch {}: {:.4} with K = {}, {:.4} with K = {}.",
                early(0).epoch,
                early(0).ndcg,
                CODEWORDS[0],
                early(most).ndcg,
                CODEWORDS[most]
            ),
        },
        Finding {
            claim: "Few codewords do well too.",
            verdict: Verdict::of([last[0] > 0.98 * high]),
            evidence: format!(
                "In the end from {low:.4} to {high:.4}; K = {} reaches {:.4}. Within 2 % of the best counts.",
                CODEWORDS[0], last[0]
            ),
        },
    ];
    Ok(Page {
        id: "fig-clusters",
        title: "Figure 5 (b): the number of codewords",
        method: format!(
            "Gowalla, midx-uniform, {} negatives, {} epochs at a learning rate of {}.",
            start.negatives, start.epochs, start.learning_rate
        ),
        table: curve::table(&curves),
        numbers: curve::numbers(&curves),
        plot: Some(
            Figure { title: "Number of codewords, Gowalla".into(), panels: curve::panels(&curves) }.svg()?,
        ),
        findings,
    })
}
