//! Plots: drawn as SVG, and as PNG from the same drawing.
//!
//! Colours are Okabe and Ito's, which everybody tells apart; lines differ in marks too, for print without colour.

mod axis;
mod bars;
mod lines;

pub use axis::Scale;
pub use bars::{Bar, Bars, bars};
pub use lines::{Figure, Mark, Panel, Series};

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::usvg::fontdb::Database;
use resvg::{tiny_skia, usvg};

use crate::output::write;

/// The only font that text is rasterised with, so that a PNG is the same on every machine.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans.subset.ttf");
const FONT_FAMILY: &str = "DejaVu Sans";
/// Pixels of a PNG for each unit of the drawing.
const PIXELS: f32 = 2.0;

/// Colours of lines and bars, in the order in which they are taken. The palette's yellow is left out: it does
/// not show on white.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(140, 140, 140),
];

/// Where a text stands from its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Right of it, at half its height.
    Left,
    /// Left of it, at half its height.
    Right,
    /// Below its middle.
    Top,
    /// Around it, turned to be read upwards.
    Upwards,
}

/// A style for text of `size` units.
pub fn text_style(size: i32, anchor: Anchor) -> TextStyle<'static> {
    let (across, down) = match anchor {
        Anchor::Left => (HPos::Left, VPos::Center),
        Anchor::Right => (HPos::Right, VPos::Center),
        Anchor::Top => (HPos::Center, VPos::Top),
        Anchor::Upwards => (HPos::Center, VPos::Center),
    };
    let font = ("sans-serif", size).into_font();
    let font = if anchor == Anchor::Upwards { font.transform(FontTransform::Rotate270) } else { font };
    font.color(&BLACK).pos(Pos::new(across, down))
}

/// The SVG of what `draw` draws on a white area of `width x height` units.
///
/// # Errors
/// What the drawing reports.
pub fn svg(
    (width, height): (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn,
) -> Result<String> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        let drawn = root.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&root));
        drawn
            .and_then(|()| root.present().map_err(Into::into))
            .map_err(|error| anyhow::anyhow!("{error}"))
            .context("the plot cannot be drawn")?;
    }
    Ok(text)
}

/// What drawing on an area gives.
pub type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Writes `svg` to `path` with the extensions `svg` and `png`.
///
/// # Errors
/// What the disk refuses.
pub fn save(svg: &str, path: &Path) -> Result<()> {
    write(&path.with_extension("svg"), svg.as_bytes())?;
    write(&path.with_extension("png"), &png(svg)?)
}

fn png(svg: &str) -> Result<Vec<u8>> {
    let mut fonts = Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family(FONT_FAMILY);
    let options = usvg::Options {
        fontdb: Arc::new(fonts),
        font_family: FONT_FAMILY.to_string(),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(svg, &options).context("the plot cannot be rasterised")?;
    let size = tree.size().to_int_size().scale_by(PIXELS).context("the plot has no size")?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height()).context("the plot is too large")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(PIXELS, PIXELS), &mut pixels.as_mut());
    pixels.encode_png().context("the plot cannot be written as PNG")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ink(text: &str) -> usize {
        let svg =
            svg((200, 40), |root| Ok(root.draw(&Text::new(text, (10, 20), text_style(14, Anchor::Left)))?));
        let bytes = png(&svg.unwrap()).unwrap();
        let pixels = tiny_skia::Pixmap::decode_png(&bytes).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (400, 80));
        pixels.pixels().iter().filter(|pixel| pixel.red() < 128).count()
    }

    #[test]
    fn text_of_a_png_is_drawn_with_the_font_in_the_program() {
        assert_eq!(ink(" "), 0);
        // Every sign that pages put into plots leaves ink.
        for sign in "abzAZ09@%.,:;-+()/=×±≤—".chars() {
            assert!(ink(&sign.to_string()) > 0, "{sign} has no glyph");
        }
        assert!(ink("midx-popularity") > 4 * ink("mi"));
    }

    #[test]
    fn both_files_of_a_plot_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let svg = svg((50, 50), |root| Ok(root.draw(&Rectangle::new([(5, 5), (20, 20)], BLACK.filled()))?))
            .unwrap();
        save(&svg, &directory.path().join("plot")).unwrap();
        assert!(std::fs::read_to_string(directory.path().join("plot.svg")).unwrap().contains("<rect"));
        assert!(std::fs::read(directory.path().join("plot.png")).unwrap().starts_with(b"\x89PNG"));
    }
}
