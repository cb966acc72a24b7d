//! The bar chart of a comparison.

use std::path::Path;

use anyhow::Result;

use super::summary::Summary;
use crate::plot::{Bar, Bars, bars, save};

/// Writes the bars of the first metric, best first, with the deviations over folds as whiskers: as SVG and as PNG.
///
/// # Errors
/// What the disk refuses.
pub fn write(summary: &Summary, title: &str, path: &Path) -> Result<()> {
    let lines = summary.models.iter().filter_map(|line| {
        let value = *line.metrics.get(&summary.metric)?;
        Some(Bar { name: line.model.clone(), value, reference: None })
    });
    let heading = match summary.folds {
        1 => summary.metric.to_string(),
        _ => format!("{}, mean over folds and deviation", summary.metric),
    };
    let panel = Bars { title: title.to_string(), heading, bars: lines.collect() };
    save(&bars(&[panel])?, path)
}
