//! Common base of all figures: an area, axes with units, texts and markers in pixels.

use std::ops::Range;

use anyhow::Result;
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::palette::{AXIS, GRID, Ink, MUTED, Marker, PAPER, TEXT};
use crate::bench::report::html::Svg;
use crate::bench::report::number::on_axis;

/// Drawing pixels per page pixel: the library places items on whole pixels, and two per page pixel
/// place lines exactly.
pub(in crate::bench::report) const SCALE: i32 = 2;
/// Width of a figure on the page.
pub(super) const WIDTH: i32 = 620;
pub(super) const TEXT_SIZE: f64 = 12.0;
/// Divisor that the library applies to text sizes; it holds for the fonts that the library
/// measured.
const FONT_FACTOR: f64 = 1.24;
/// Width of a letter as a fraction of the text's size; a generous estimate.
const LETTER_WIDTH: f64 = 0.57;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Chart<'b, 'a> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<Axis, Axis>>;

/// Draws a figure of this height in page pixels.
pub(super) fn drawing(height: i32, draw: impl FnOnce(&Area) -> Result<()>) -> Result<Svg> {
    let mut svg = String::new();
    let size = ((WIDTH * SCALE) as u32, (height * SCALE) as u32);
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area)?;
        area.present()?;
    }
    Ok(Svg(svg))
}

/// An axis: its range, the positions of its labels, its title.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) range: Range<f64>,
    pub(super) ticks: Vec<f64>,
    step: f64,
    pub(super) label: String,
    unit: &'static str,
}

impl Axis {
    /// Returns an axis from zero to a round number above `most`.
    pub(super) fn from_zero(most: f64, label: &str) -> Axis {
        Axis::rising(most, label, 5.0)
    }

    /// Returns an axis from zero with fewer labels, for a row beside its name and number.
    pub(super) fn across(most: f64, label: &str) -> Axis {
        Axis::rising(most, label, 3.5)
    }

    fn rising(most: f64, label: &str, labels: f64) -> Axis {
        let step = step(most.max(f64::MIN_POSITIVE), labels);
        let count = (most / step).ceil().max(1.0) as u32;
        Axis {
            range: 0.0..f64::from(count) * step,
            ticks: (0..=count).map(|n| f64::from(n) * step).collect(),
            step,
            label: label.to_owned(),
            unit: "",
        }
    }

    /// Returns an axis with the points of a sweep. Points too close to each other have no label.
    pub(super) fn of_points(points: &[f64], pixels: i32, label: &str) -> Axis {
        let (least, most) = (points[0], points[points.len() - 1]);
        let margin = ((most - least) * 0.03).max(most * 0.01).max(1e-9);
        let range = least - margin..most + margin;
        let pixel = (range.end - range.start) / f64::from(pixels);
        let mut ticks: Vec<f64> = Vec::new();
        for point in points {
            // The last point always has a label.
            let gap_px = 30.0 * pixel;
            let free = ticks.last().is_none_or(|last| point - last >= gap_px);
            if free && (*point == most || most - point >= gap_px) {
                ticks.push(*point);
            }
        }
        Axis {
            range,
            ticks,
            step: if points.iter().all(|p| p.fract() == 0.0) {
                1.0
            } else {
                0.1
            },
            label: label.to_owned(),
            unit: "",
        }
    }

    /// Returns an axis of rows without labels; the first row is at the top.
    pub(super) fn rows(count: usize) -> Axis {
        Axis {
            range: count as f64..0.0,
            ticks: Vec::new(),
            step: 1.0,
            label: String::new(),
            unit: "",
        }
    }

    /// Sets the unit that follows each number.
    pub(super) fn with_unit(mut self, unit: &'static str) -> Axis {
        self.unit = unit;
        self
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        first + (f64::from(last - first) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        on_axis(*value, self.step) + self.unit
    }
}

/// Returns a round step that gives about `labels` labels.
fn step(span: f64, labels: f64) -> f64 {
    let rough = span / labels;
    let magnitude = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fitting = steps.into_iter().find(|s| s * magnitude >= rough * 0.999);
    fitting.unwrap_or(10.0) * magnitude
}

/// The margins around the plot, in page pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
}

/// Draws axes with labels, units and a light grid.
pub(super) fn chart<'b, 'a>(
    area: &'b Area<'a>,
    frame: Frame,
    x: &Axis,
    y: &Axis,
) -> Result<Chart<'b, 'a>> {
    let mut chart = ChartBuilder::on(area)
        .margin_right(frame.right * SCALE)
        .margin_top(frame.top * SCALE)
        .x_label_area_size(frame.bottom * SCALE)
        .y_label_area_size(frame.left * SCALE)
        .build_cartesian_2d(x.clone(), y.clone())?;
    let font = |size: f64| ("sans-serif", size * FONT_FACTOR * f64::from(SCALE));
    let is_rows = y.ticks.is_empty();
    let mut mesh = chart.configure_mesh();
    if is_rows {
        mesh.disable_y_axis().disable_y_mesh();
    } else {
        mesh.disable_x_mesh();
    }
    mesh.axis_style(AXIS.paint().stroke_width(SCALE as u32))
        .bold_line_style(GRID.paint().stroke_width(SCALE as u32))
        .light_line_style(TRANSPARENT)
        .label_style(font(TEXT_SIZE).into_font().color(&MUTED.paint()))
        .axis_desc_style(font(TEXT_SIZE).into_font().color(&MUTED.paint()))
        .x_desc(x.label.clone())
        .draw()?;
    if !is_rows {
        let place = ((frame.left - 8).min(4), frame.top / 2);
        text(area, place, &y.label, Style::new(MUTED))?;
    }
    Ok(chart)
}

/// Style of a text.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) ink: Ink,
    pub(super) size: f64,
    pub(super) across: HPos,
    pub(super) is_bold: bool,
}

impl Style {
    pub(super) fn new(ink: Ink) -> Style {
        Style {
            ink,
            size: TEXT_SIZE,
            across: HPos::Left,
            is_bold: false,
        }
    }

    pub(super) fn bold(mut self, is_bold: bool) -> Style {
        self.is_bold = is_bold;
        self
    }

    pub(super) fn to_the(mut self, across: HPos) -> Style {
        self.across = across;
        self
    }
}

/// Draws a text at a position in page pixels, vertically centered.
pub(super) fn text(area: &Area, (x, y): (i32, i32), words: &str, style: Style) -> Result<()> {
    let size = style.size * FONT_FACTOR * f64::from(SCALE);
    let face = if style.is_bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    let font = ("sans-serif", size, face).into_text_style(area);
    let paint = style.ink.paint();
    let font = font.color(&paint).pos(Pos::new(style.across, VPos::Center));
    area.draw(&Text::new(words, (x * SCALE, y * SCALE), font))?;
    Ok(())
}

/// Returns the approximate width of a text in page pixels.
pub(super) fn width_of(words: &str) -> i32 {
    (words.chars().count() as f64 * TEXT_SIZE * LETTER_WIDTH).ceil() as i32
}

/// Shortens a text to a width of `pixels`.
pub(super) fn cut(words: &str, pixels: i32) -> String {
    let fitting = (f64::from(pixels) / (TEXT_SIZE * LETTER_WIDTH)).floor() as usize;
    if words.chars().count() <= fitting {
        return words.to_owned();
    }
    let kept: String = words.chars().take(fitting.saturating_sub(1)).collect();
    kept.trim_end().to_owned() + "…"
}

/// Returns the width of these labels beside a plot.
pub(super) fn room_for<'t>(labels: impl Iterator<Item = &'t str>, most: i32) -> i32 {
    labels.map(width_of).max().unwrap_or(0).min(most)
}

/// Draws a marker at a position in drawing pixels, on a patch of background so that lines do not
/// hide it.
pub(super) fn marker(area: &Area, (x, y): (i32, i32), marker: Marker, ink: Ink) -> Result<()> {
    let (size, paint) = (4 * SCALE, ink.paint());
    let line = paint.stroke_width(2 * SCALE as u32);
    area.draw(&Circle::new((x, y), size + SCALE, PAPER.paint().filled()))?;
    let polygon = |corners: &[(i32, i32)]| {
        let corners: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        area.draw(&Polygon::new(corners, paint.filled()))
    };
    let stroke = |from: (i32, i32), to: (i32, i32)| {
        let ends = vec![(x + from.0, y + from.1), (x + to.0, y + to.1)];
        area.draw(&PathElement::new(ends, line))
    };
    let (side, tip) = (size - SCALE / 2, size + SCALE);
    match marker {
        Marker::Disc => area.draw(&Circle::new((x, y), size, paint.filled()))?,
        Marker::Ring => area.draw(&Circle::new((x, y), size - 1, line))?,
        Marker::Square => polygon(&[(-side, -side), (side, -side), (side, side), (-side, side)])?,
        Marker::Triangle => polygon(&[(0, -tip), (tip, side), (-tip, side)])?,
        Marker::Diamond => polygon(&[(0, -tip), (tip, 0), (0, tip), (-tip, 0)])?,
        Marker::Cross => {
            stroke((-side, -side), (side, side))?;
            stroke((-side, side), (side, -side))?;
        }
        Marker::Plus => {
            stroke((-tip, 0), (tip, 0))?;
            stroke((0, -tip), (0, tip))?;
        }
    }
    Ok(())
}

/// Draws a line, dashed or solid, through positions in drawing pixels.
pub(super) fn line(
    area: &Area,
    places: &[(i32, i32)],
    dash: Option<(i32, i32)>,
    style: ShapeStyle,
) -> Result<()> {
    match dash {
        None => area.draw(&PathElement::new(places.to_vec(), style))?,
        Some((drawn, left_out)) => {
            let (drawn, left_out) = (drawn * SCALE, left_out * SCALE);
            area.draw(&DashedPathElement::new(
                places.to_vec(),
                drawn,
                left_out,
                style,
            ))?;
        }
    }
    Ok(())
}

/// Draws the label of a row, left of the plot.
pub(super) fn row_label(
    area: &Area,
    frame: Frame,
    y: i32,
    words: &str,
    is_strong: bool,
) -> Result<()> {
    let style = Style::new(TEXT).to_the(HPos::Right).bold(is_strong);
    text(
        area,
        (frame.left - 8, y),
        &cut(words, frame.left - 12),
        style,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_on_a_round_number_with_few_labels() {
        for (most, end) in [
            (34_994.0, 40_000.0),
            (97.0, 100.0),
            (0.21, 0.25),
            (1.0, 1.0),
        ] {
            let axis = Axis::from_zero(most, "");
            assert!((axis.range.end - end).abs() < 1e-9, "{most}: {axis:?}");
            assert!((4..=9).contains(&axis.ticks.len()), "{most}: {axis:?}");
        }
    }

    #[test]
    fn an_axis_of_nothing_has_a_length_all_the_same() {
        let axis = Axis::from_zero(0.0, "");
        assert!(axis.range.end > 0.0);
    }

    #[test]
    fn crowded_points_share_a_label_and_the_last_keeps_its_own() {
        let points: Vec<f64> = (1..=65).map(f64::from).collect();
        let ticks = Axis::of_points(&points, 400, "threads").ticks;
        assert!(ticks.len() <= 14, "{ticks:?}");
        assert_eq!((ticks[0], ticks[ticks.len() - 1]), (1.0, 65.0));
    }

    #[test]
    fn a_long_label_is_cut_with_a_sign() {
        assert_eq!(cut("MySQL Router", 200), "MySQL Router");
        assert_eq!(cut("MySQL Router for two", 90), "MySQL Router…");
    }
}
