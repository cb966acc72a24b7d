//! Figures of line plots side by side, each with its legend below it.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::axis::{Axis, Scale};
use super::{Anchor, COLOURS, Drawn, svg, text_style};

const WIDTH: i32 = 500;
/// Room around the frame of a panel.
const LEFT: i32 = 76;
const RIGHT: i32 = 18;
const TOP: i32 = 34;
const FRAME_HEIGHT: i32 = 290;
/// From the frame to the first line of the legend: the marks of the axis and its name.
const BELOW: i32 = 58;
const LEGEND_LINE: i32 = 19;
const TITLE_HEIGHT: i32 = 34;
/// Width of a letter at the size of the legend; DejaVu's widest common ones stay below.
const LETTER: i32 = 8;
const SAMPLE: i32 = 34;
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Line plots side by side.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What stands above all.
    pub title: String,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// One line plot.
#[derive(Debug, Clone)]
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// Name of the horizontal axis, with the unit.
    pub x: String,
    /// Name of the vertical axis, with the unit.
    pub y: String,
    /// Spread along the horizontal axis.
    pub x_scale: Scale,
    /// Spread along the vertical axis.
    pub y_scale: Scale,
    /// Values to mark on the horizontal axis, where round ones would not do.
    pub x_ticks: Option<Vec<f64>>,
    /// The lines; later ones lie on top.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// A place in [`COLOURS`].
    pub colour: usize,
    /// How it is drawn.
    pub mark: Mark,
    /// Its points, left to right.
    pub points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A plain line.
    Plain,
    /// A broad line, for others to lie on.
    Broad,
    /// A line of dashes.
    Dashed,
    /// A line with its points marked by discs.
    Discs,
    /// A line with its points marked by triangles.
    Triangles,
    /// A line with its points marked by crosses.
    Crosses,
    /// A line with its points marked by squares.
    Squares,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

impl Figure {
    /// The drawing.
    ///
    /// # Errors
    /// What the drawing reports.
    pub fn svg(&self) -> Result<String> {
        let legend = self.panels.iter().map(Panel::legend_lines).max().unwrap_or(0);
        let height = TITLE_HEIGHT + TOP + FRAME_HEIGHT + BELOW + legend * LEGEND_LINE + 10;
        let width = WIDTH * self.panels.len().max(1) as i32;
        svg((width as u32, height as u32), |root| {
            root.draw(&Text::new(self.title.clone(), (width / 2, 10), text_style(16, Anchor::Top)))?;
            for (at, panel) in self.panels.iter().enumerate() {
                panel.draw(root, WIDTH * at as i32)?;
            }
            Ok(())
        })
    }
}

impl Panel {
    /// Legends stand in as many columns as their longest name allows.
    fn legend_columns(&self) -> i32 {
        let longest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(1) as i32;
        ((WIDTH - LEFT - RIGHT) / (SAMPLE + LETTER * longest + 12)).clamp(1, 3)
    }

    fn legend_lines(&self) -> i32 {
        self.series.len().div_ceil(self.legend_columns() as usize) as i32
    }

    fn draw(&self, root: &Area<'_>, left: i32) -> Drawn {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let across = Axis::over(points().map(|point| point.0), self.x_scale, self.x_ticks.as_deref());
        let up = Axis::over(points().map(|point| point.1), self.y_scale, None);
        let (x0, x1) = (left + LEFT, left + WIDTH - RIGHT);
        let (y0, y1) = (TITLE_HEIGHT + TOP, TITLE_HEIGHT + TOP + FRAME_HEIGHT);
        let x = |place: f64| x0 + (place * f64::from(x1 - x0)).round() as i32;
        let y = |place: f64| y1 - (place * f64::from(y1 - y0)).round() as i32;
        let title = Text::new(self.title.clone(), ((x0 + x1) / 2, y0 - 22), text_style(14, Anchor::Top));
        root.draw(&title)?;
        for &tick in &up.ticks {
            let Some(at) = up.place(tick).map(y) else { continue };
            root.draw(&PathElement::new(vec![(x0, at), (x1, at)], GRID.stroke_width(1)))?;
            root.draw(&Text::new(up.label(tick), (x0 - 7, at), text_style(12, Anchor::Right)))?;
        }
        for &tick in &across.ticks {
            let Some(at) = across.place(tick).map(x) else { continue };
            root.draw(&PathElement::new(vec![(at, y0), (at, y1)], GRID.stroke_width(1)))?;
            root.draw(&Text::new(across.label(tick), (at, y1 + 7), text_style(12, Anchor::Top)))?;
        }
        for series in &self.series {
            let pixels: Vec<(i32, i32)> = series
                .points
                .iter()
                .filter_map(|&(a, b)| Some((x(across.place(a)?), y(up.place(b)?))))
                .collect();
            series.draw(root, &pixels, &pixels)?;
        }
        root.draw(&Rectangle::new([(x0, y0), (x1, y1)], BLACK.stroke_width(1)))?;
        root.draw(&Text::new(self.x.clone(), ((x0 + x1) / 2, y1 + 28), text_style(13, Anchor::Top)))?;
        root.draw(&Text::new(self.y.clone(), (left + 14, (y0 + y1) / 2), text_style(13, Anchor::Upwards)))?;
        let columns = self.legend_columns();
        let lines = self.legend_lines();
        for (at, series) in self.series.iter().enumerate() {
            let (column, line) = (at as i32 / lines, at as i32 % lines);
            let start = x0 + column * (x1 - x0) / columns;
            let middle = y1 + BELOW + line * LEGEND_LINE + LEGEND_LINE / 2;
            let ends = [(start, middle), (start + SAMPLE - 8, middle)];
            series.draw(root, &ends, &[(start + SAMPLE / 2 - 4, middle)])?;
            let name = Text::new(series.name.clone(), (start + SAMPLE, middle), text_style(12, Anchor::Left));
            root.draw(&name)?;
        }
        Ok(())
    }
}

impl Series {
    fn draw(&self, root: &Area<'_>, line: &[(i32, i32)], marked: &[(i32, i32)]) -> Drawn {
        let colour = COLOURS[self.colour % COLOURS.len()];
        let width = if self.mark == Mark::Broad { 5 } else { 2 };
        match self.mark {
            Mark::Dashed => {
                root.draw(&DashedPathElement::new(line.to_vec(), 7, 5, colour.stroke_width(width)))?
            }
            _ => root.draw(&PathElement::new(line.to_vec(), colour.stroke_width(width)))?,
        }
        for &(x, y) in marked {
            match self.mark {
                Mark::Plain | Mark::Broad | Mark::Dashed => break,
                Mark::Discs => root.draw(&Circle::new((x, y), 4, colour.filled()))?,
                Mark::Triangles => root.draw(&TriangleMarker::new((x, y), 5, colour.filled()))?,
                Mark::Crosses => root.draw(&Cross::new((x, y), 4, colour.stroke_width(2)))?,
                Mark::Squares => {
                    root.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], colour.filled()))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(names: &[&str]) -> Panel {
        Panel {
            title: "a".into(),
            x: "items".into(),
            y: "seconds".into(),
            x_scale: Scale::Log,
            y_scale: Scale::Linear,
            x_ticks: None,
            series: names
                .iter()
                .enumerate()
                .map(|(at, name)| Series {
                    name: name.to_string(),
                    colour: at,
                    mark: Mark::Discs,
                    points: vec![(10.0, 1.0), (100.0, 2.0 + at as f64)],
                })
                .collect(),
        }
    }

    #[test]
    fn a_figure_names_its_axes_and_lines() {
        let figure = Figure { title: "both".into(), panels: vec![panel(&["one", "two"]), panel(&["three"])] };
        let svg = figure.svg().unwrap();
        for text in ["both", "items", "seconds", "one", "two", "three", "100"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} is not in the plot");
        }
        assert!(svg.contains(&format!("width=\"{}\"", 2 * WIDTH)));
    }

    #[test]
    fn legends_take_fewer_columns_for_longer_names() {
        assert_eq!(panel(&["a", "b", "c"]).legend_columns(), 3);
        assert_eq!(panel(&["midx-popularity, KL 0.123"]).legend_columns(), 1);
        assert_eq!(panel(&["a", "b", "c", "d"]).legend_lines(), 2);
    }
}
