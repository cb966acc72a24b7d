//! Bars with whiskers, one below the other, in panels side by side.

use anyhow::Result;
use plotters::prelude::*;

use super::{Anchor, COLOURS, svg, text_style};
use crate::display::Spread;

const LINE_HEIGHT: i32 = 34;
const WIDTH: i32 = 760;
/// Room for names, left of the bars, and for values, right of them.
const LEFT: i32 = 122;
const RIGHT: i32 = 150;
const TOP: i32 = 64;
const BOTTOM: i32 = 20;

/// One panel of bars.
#[derive(Debug, Clone)]
pub struct Bars {
    /// What stands above.
    pub title: String,
    /// What the lengths are.
    pub heading: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What stands left of it.
    pub name: String,
    /// Its length, and half that of its whisker.
    pub value: Spread,
    /// A value marked across it, by a published figure for one.
    pub reference: Option<f64>,
}

impl Bar {
    /// How far it reaches, with whisker and mark.
    fn end(&self) -> f64 {
        (self.value.mean + self.value.deviation.unwrap_or(0.0)).max(self.reference.unwrap_or(0.0))
    }
}

/// The drawing of `panels`.
///
/// # Errors
/// What the drawing reports.
pub fn bars(panels: &[Bars]) -> Result<String> {
    let longest = panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0) as i32;
    let size = (WIDTH as u32 * panels.len().max(1) as u32, (TOP + LINE_HEIGHT * longest + BOTTOM) as u32);
    svg(size, |root| {
        for (at, panel) in panels.iter().enumerate() {
            let left = WIDTH * at as i32;
            let most = panel.bars.iter().map(Bar::end).fold(1e-9, f64::max);
            let x =
                |value: f64| left + LEFT + (value / most * f64::from(WIDTH - LEFT - RIGHT)).round() as i32;
            root.draw(&Text::new(panel.title.clone(), (left + 12, 18), text_style(15, Anchor::Left)))?;
            root.draw(&Text::new(panel.heading.clone(), (left + 12, 42), text_style(13, Anchor::Left)))?;
            for (line, bar) in panel.bars.iter().enumerate() {
                let top = TOP + LINE_HEIGHT * line as i32;
                let bottom = top + LINE_HEIGHT - 10;
                let middle = (top + bottom) / 2;
                let name =
                    Text::new(bar.name.clone(), (left + LEFT - 8, middle), text_style(13, Anchor::Right));
                root.draw(&name)?;
                let Spread { mean, deviation } = bar.value;
                root.draw(&Rectangle::new([(x(0.0), top), (x(mean), bottom)], COLOURS[0].filled()))?;
                if let Some(deviation) = deviation.filter(|&deviation| deviation > 0.0) {
                    let ends = [(mean - deviation).max(0.0), mean + deviation];
                    let whisker = ends.map(|end| (x(end), middle)).to_vec();
                    root.draw(&PathElement::new(whisker, BLACK.stroke_width(2)))?;
                }
                if let Some(reference) = bar.reference {
                    let across = vec![(x(reference), top - 3), (x(reference), bottom + 3)];
                    root.draw(&PathElement::new(across, COLOURS[1].stroke_width(3)))?;
                }
                let beside = (x(bar.end()) + 8, middle);
                root.draw(&Text::new(bar.value.to_string(), beside, text_style(13, Anchor::Left)))?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_panel_and_values_are_written_out() {
        let bar = |name: &str, mean: f64, reference| Bar {
            name: name.into(),
            value: Spread { mean, deviation: Some(0.0012) },
            reference,
        };
        let panel = Bars {
            title: "data".into(),
            heading: "ndcg@50".into(),
            bars: vec![bar("wrmf", 0.2, None), bar("bpr", 0.1, Some(0.15))],
        };
        let svg = bars(&[panel]).unwrap();
        for text in ["data", "ndcg@50", "wrmf", "bpr", "0.2000 ± 0.0012"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text}");
        }
        // The white ground and two bars.
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}
