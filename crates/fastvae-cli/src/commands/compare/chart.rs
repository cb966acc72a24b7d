//! The bar chart of a comparison.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use fastvae::write::AtomicFile;
use plotters::prelude::*;

use super::summary::Summary;

/// Dark blue of Okabe and Ito's palette, which everybody tells apart.
const BAR: RGBColor = RGBColor(0, 114, 178);
const LINE_HEIGHT: u32 = 34;
const WIDTH: u32 = 760;
/// Room for the names of models, left of the bars, and for values, right of them.
const LEFT: i32 = 110;
const RIGHT: i32 = 130;
const TOP: i32 = 64;

/// Writes the bars of the first metric, best first, with the deviations over folds as whiskers.
///
/// # Errors
/// What the disk refuses.
pub fn write(summary: &Summary, title: &str, path: &Path) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(svg(summary, title)?.as_bytes()).map_err(|source| crate::failure::io(path, source))?;
    Ok(file.commit()?)
}

fn svg(summary: &Summary, title: &str) -> Result<String> {
    let mut text = String::new();
    let bars: Vec<(&str, f64, f64)> = summary
        .models
        .iter()
        .filter_map(|line| {
            let spread = line.metrics.get(&summary.metric)?;
            Some((line.model.as_str(), spread.mean, spread.deviation.unwrap_or(0.0)))
        })
        .collect();
    let height = TOP as u32 + LINE_HEIGHT * bars.len() as u32 + 40;
    let most = bars.iter().map(|(_, mean, deviation)| mean + deviation).fold(1e-9, f64::max);
    let x = |value: f64| LEFT + (value / most * f64::from(WIDTH as i32 - LEFT - RIGHT)) as i32;
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let draw = || -> Result<(), Box<dyn std::error::Error>> {
            root.fill(&WHITE)?;
            let label = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
            root.draw(&Text::new(title.to_string(), (12, 10), label(15)))?;
            let heading = format!("{}, mean over folds and deviation", summary.metric);
            root.draw(&Text::new(heading, (12, 34), label(13)))?;
            for (at, &(model, mean, deviation)) in bars.iter().enumerate() {
                let top = TOP + (LINE_HEIGHT * at as u32) as i32;
                let middle = top + LINE_HEIGHT as i32 / 2 - 4;
                root.draw(&Text::new(model.to_string(), (12, middle - 7), label(14)))?;
                let bar = [(x(0.0), top), (x(mean), top + LINE_HEIGHT as i32 - 10)];
                root.draw(&Rectangle::new(bar, BAR.filled()))?;
                let whisker = [(x((mean - deviation).max(0.0)), middle), (x(mean + deviation), middle)];
                root.draw(&PathElement::new(whisker.to_vec(), BLACK.stroke_width(2)))?;
                let value = if deviation > 0.0 {
                    format!("{mean:.4} ± {deviation:.4}")
                } else {
                    format!("{mean:.4}")
                };
                root.draw(&Text::new(value, (x(mean + deviation) + 8, middle - 7), label(13)))?;
            }
            root.present()?;
            Ok(())
        };
        draw().map_err(|error| anyhow::anyhow!("{error}")).context("the chart cannot be drawn")?;
    }
    Ok(text)
}
