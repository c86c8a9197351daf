//! Draws figures of rows: a bar, a share or an interval per target, with its name on the left.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::Subject;
use super::chart::{
    self, Area, Axis, Chart, Frame, SCALE, Style, WIDTH, chart, drawing, room_for, row_label,
    width_of,
};
use super::palette::{AXIS, GRID, Ink, PAPER, PARTS, TEXT};
use crate::bench::outcome::{Load, Metric};
use crate::bench::report::html::Svg;
use crate::bench::report::number::{ratio as as_ratio, short};
use crate::bench::statistics::{Interval, Question, median, ratio, within};

const ROW: i32 = 24;
const HEADING: i32 = 26;
const FOOT: i32 = 44;
const LEGEND_LINE: i32 = 18;
const LABEL_MOST: i32 = 226;

/// A panel: heading, axis, and one row per target with data.
struct Panel<T> {
    heading: String,
    axis: Axis,
    rows: Vec<(usize, T)>,
}

/// Draws panels below each other; `row` draws one row at its middle height in the chart.
fn panels<T>(
    subject: &Subject,
    panels: &[Panel<T>],
    right: i32,
    legend: &[String],
    row: impl Fn(&TestBed, usize, &T, f64) -> Result<()>,
) -> Result<Option<Svg>> {
    let titles = panels.iter().flat_map(|panel| {
        panel
            .rows
            .iter()
            .map(|(target, _)| subject.title_of(*target))
    });
    let frame = Frame {
        left: room_for(titles, LABEL_MOST) + 16,
        right,
        top: HEADING,
        bottom: FOOT,
    };
    let top = legend_height(frame.left, legend);
    let heights = panels
        .iter()
        .map(|p| HEADING + FOOT + ROW * p.rows.len() as i32);
    let heights: Vec<i32> = heights.collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let svg = drawing(top + heights.iter().sum::<i32>(), |area| {
        draw_legend(area, frame.left, legend)?;
        let mut rest = area.split_vertically(top * SCALE).1;
        for (panel, height) in panels.iter().zip(&heights) {
            let (area, below) = rest.split_vertically(height * SCALE);
            let chart = chart(&area, frame, &panel.axis, &Axis::rows(panel.rows.len()))?;
            let bed = TestBed {
                area: &area,
                chart: &chart,
            };
            let heading = Style::new(TEXT).bold(true);
            chart::text(&area, (4, HEADING / 2), &panel.heading, heading)?;
            for (index, (target, value)) in panel.rows.iter().enumerate() {
                let middle = index as f64 + 0.5;
                let y = frame.top + ROW * index as i32 + ROW / 2;
                let target_style = subject.target_styles[*target];
                row_label(
                    &area,
                    frame,
                    y,
                    subject.title_of(*target),
                    target_style.is_strong,
                )?;
                row(&bed, *target, value, middle)?;
            }
            rest = below;
        }
        Ok(())
    })?;
    Ok(Some(svg))
}

/// Area of a row.
struct TestBed<'s, 'b, 'a> {
    area: &'s Area<'a>,
    chart: &'s Chart<'b, 'a>,
}

impl TestBed<'_, '_, '_> {
    /// Converts chart coordinates to pixels of this panel.
    fn position(&self, x: f64, row: f64) -> (i32, i32) {
        let (x, y) = self.chart.plotting_area().map_coordinate(&(x, row));
        let (left, top) = self.area.get_base_pixel();
        (x - left, y - top)
    }

    fn bar(&self, (from, until): (f64, f64), row: f64, half: f64, ink: Ink) -> Result<()> {
        let (upper, lower) = (
            self.position(from, row - half),
            self.position(until, row + half),
        );
        let bar = Rectangle::new([upper, lower], ink.paint().filled());
        self.area.draw(&bar)?;
        Ok(())
    }

    /// Draws a whisker from minimum to maximum, with end caps.
    fn whisker(&self, (least, most): (f64, f64), row: f64, ink: Ink) -> Result<()> {
        let (from, until) = (self.position(least, row), self.position(most, row));
        let style = ink.paint().stroke_width(3);
        chart::line(self.area, &[from, until], None, style)?;
        for (x, y) in [from, until] {
            let end = [(x, y - 4 * SCALE), (x, y + 4 * SCALE)];
            chart::line(self.area, &end, None, style)?;
        }
        Ok(())
    }

    fn words(&self, x: f64, row: f64, offset: i32, words: &str, style: Style) -> Result<()> {
        let (x, y) = self.position(x, row);
        chart::text(self.area, (x / SCALE + offset, y / SCALE), words, style)
    }
}

/// Returns the line and left edge of each name in a legend. The legend is above the plot if it
/// fits, extends over the labels if it is wider, and has several lines if necessary.
fn legend_places(left: i32, legend: &[String]) -> Vec<(i32, i32)> {
    let width = |words: &String| 34 + width_of(words);
    let length: i32 = legend.iter().map(width).sum();
    let first = left.min(WIDTH - length).max(4);
    let (mut line, mut x) = (0, first);
    let mut places = Vec::new();
    for words in legend {
        if x > first && x + width(words) > WIDTH {
            (line, x) = (line + 1, first);
        }
        places.push((line, x));
        x += width(words);
    }
    places
}

/// Returns the height of a legend.
pub(super) fn legend_height(left: i32, legend: &[String]) -> i32 {
    let places = legend_places(left, legend);
    places
        .last()
        .map_or(0, |(line, _)| HEADING + line * LEGEND_LINE)
}

/// Draws the legend: the names of the parts.
pub(super) fn draw_legend(area: &Area, left: i32, legend: &[String]) -> Result<()> {
    let places = legend_places(left, legend);
    for (part, (words, (line, x))) in legend.iter().zip(places).enumerate() {
        let middle = HEADING / 2 + line * LEGEND_LINE;
        let corners = [
            (x * SCALE, (middle - 5) * SCALE),
            ((x + 14) * SCALE, (middle + 5) * SCALE),
        ];
        let ink = PARTS[part % PARTS.len()];
        area.draw(&Rectangle::new(corners, ink.paint().filled()))?;
        area.draw(&Rectangle::new(corners, AXIS.paint().stroke_width(1)))?;
        chart::text(area, (x + 20, middle), words, Style::new(TEXT))?;
    }
    Ok(())
}

/// Values that a bar shows.
struct Bar {
    least: f64,
    median: f64,
    most: f64,
    /// Ratio to the reference, within blocks.
    ratio: Option<Interval>,
}

/// Draws one bar per target for each load: the median over the blocks of the mean over the points.
/// A whisker reaches from the minimum to the maximum block; the ratio to the reference is beside
/// it.
pub(super) fn bars(subject: &Subject, loads: &[&Load]) -> Result<Option<Svg>> {
    let figure = subject.figure;
    let panel = |load: &&Load| {
        let reference = subject.reference(&load.name);
        let bar = |name: &str| {
            let values = subject.block_means(name, &load.name, figure.metric);
            let question = Question {
                load: &load.name,
                metric: figure.metric,
                target: name,
                to: reference.unwrap_or_default(),
                points: figure.points,
            };
            Some(Bar {
                least: values.iter().copied().reduce(f64::min)?,
                median: median(&values)?,
                most: values.iter().copied().reduce(f64::max)?,
                ratio: reference
                    .filter(|reference| *reference != name)
                    .and_then(|_| ratio(&subject.cells, &question, subject.bootstrap)),
            })
        };
        let rows = subject.rows(bar);
        let most = rows.iter().map(|(_, bar)| bar.most).fold(0.0, f64::max);
        let axis = Axis::across(most, &figure.metric.label(&load.counted));
        Panel {
            heading: load.title.clone(),
            axis,
            rows,
        }
    };
    let all: Vec<Panel<Bar>> = loads
        .iter()
        .map(panel)
        .filter(|p| !p.rows.is_empty())
        .collect();
    panels(subject, &all, 150, &[], |bed, target, bar, row| {
        let target_style = subject.target_styles[target];
        bed.bar((0.0, bar.median), row, 0.32, target_style.ink)?;
        bed.whisker((bar.least, bar.most), row, TEXT)?;
        let ratio = bar
            .ratio
            .map_or(String::new(), |r| format!(" (× {})", as_ratio(r.middle)));
        let words = format!("{}{ratio}", short(bar.median));
        let style = Style::new(TEXT).bold(target_style.is_strong);
        bed.words(bar.most.max(bar.median), row, 8, &words, style)
    })
}

/// Draws each target's ratio to the reference, with its interval and the no-difference band. There
/// is a panel for each of the figure's points, or one at the reference's best point.
pub(super) fn ratios(subject: &Subject, loads: &[&Load]) -> Result<Option<Svg>> {
    let metric = subject.figure.metric;
    let panel = |load: &Load, reference: &str, point: f64| {
        let interval = |name: &str| {
            let question = Question {
                load: &load.name,
                metric,
                target: name,
                to: reference,
                points: Some((point, point)),
            };
            let of_another = name != reference;
            of_another.then(|| ratio(&subject.cells, &question, subject.bootstrap))?
        };
        let rows = subject.rows(interval);
        let most = rows.iter().map(|(_, found)| found.high).fold(1.0, f64::max);
        let label = format!(
            "{}, × {}",
            metric.label(&load.counted),
            subject.title(reference)
        );
        (!rows.is_empty()).then(|| Panel {
            heading: format!("{} — {}", load.title, load.point_label(point)),
            axis: Axis::across(most * 1.02, &label),
            rows,
        })
    };
    let mut all: Vec<Panel<Interval>> = Vec::new();
    for load in loads {
        if let Some(reference) = subject.reference(&load.name) {
            let points = ratio_points(subject, load, reference).into_iter();
            all.extend(points.filter_map(|point| panel(load, reference, point)));
        }
    }
    panels(subject, &all, 130, &[], |bed, target, found, row| {
        bed.bar((0.97, 1.03), row, 0.5, GRID)?;
        let target_style = subject.target_styles[target];
        bed.whisker((found.low, found.high), row, target_style.ink)?;
        let at = bed.position(found.middle, row);
        chart::marker(bed.area, at, target_style.marker, target_style.ink)?;
        let range = format!(" ({}–{})", as_ratio(found.low), as_ratio(found.high));
        let range = if found.blocks < 3 { "" } else { &range };
        let words = format!("{}{range}", as_ratio(found.middle));
        let style = Style::new(TEXT).bold(target_style.is_strong);
        bed.words(found.high, row, 10, &words, style)
    })
}

/// Returns the points whose ratios are drawn.
fn ratio_points(subject: &Subject, load: &Load, reference: &str) -> Vec<f64> {
    let wanted = subject.figure.points;
    if wanted.is_none() {
        let peak = subject.peak(reference, &load.name, subject.figure.metric);
        return peak.into_iter().collect();
    }
    let mut points = subject.points(&load.name);
    points.retain(|point| within(wanted, *point));
    points
}

/// Draws the distribution of the requests over the servers, with marks for equal shares.
pub(super) fn shares(subject: &Subject, loads: &[&Load]) -> Result<Option<Svg>> {
    let mut servers: Vec<String> = Vec::new();
    for share in subject.cells.iter().flat_map(|cell| &cell.shares) {
        if !servers.contains(&share.server) {
            servers.push(share.server.clone());
        }
    }
    servers.sort();
    let panel = |load: &&Load| Panel {
        heading: load.title.clone(),
        axis: Axis::from_zero(100.0, &format!("share of {}", load.counted)).with_unit("%"),
        rows: subject.rows(|name| {
            let shares = subject.shares(name, &load.name, &servers)?;
            (subject.servers(name) > 1).then_some(shares)
        }),
    };
    let all: Vec<Panel<Vec<f64>>> = loads
        .iter()
        .map(panel)
        .filter(|p| !p.rows.is_empty())
        .collect();
    panels(subject, &all, 24, &servers, |bed, target, shares, row| {
        stack(bed, shares, row, |share| format!("{share:.0} %"))?;
        let used = subject.experiment.targets[target].servers;
        for part in 1..used {
            bed.upright_in_row(100.0 * f64::from(part) / f64::from(used), row)?;
        }
        Ok(())
    })
}

/// Draws the processor time per request of balancer, servers and load generator, at the load's best
/// point.
pub(super) fn cpu(subject: &Subject, loads: &[&Load]) -> Result<Option<Svg>> {
    const OF: [Metric; 3] = [
        Metric::BalancerCpuUs,
        Metric::ServersCpuUs,
        Metric::LoadCpuUs,
    ];
    let panel = |load: &&Load| {
        let peaks = subject.figure.points.is_none();
        let parts = |name: &str| {
            let peak = subject.peak(name, &load.name, Metric::Rate)?;
            let means = OF.map(|metric| {
                let means = if peaks {
                    subject.values(name, &load.name, metric, Some((peak, peak)))
                } else {
                    subject.block_means(name, &load.name, metric)
                };
                median(&means)
            });
            let known = means.iter().any(Option::is_some);
            known.then(|| means.map(|mean| mean.unwrap_or(0.0)).to_vec())
        };
        let rows = subject.rows(parts);
        let sum = |parts: &Vec<f64>| parts.iter().sum::<f64>();
        let most = rows.iter().map(|(_, parts)| sum(parts)).fold(0.0, f64::max);
        Panel {
            heading: load.title.clone(),
            axis: Axis::across(most, &format!("CPU µs per {}", singular(&load.counted))),
            rows,
        }
    };
    let all: Vec<Panel<Vec<f64>>> = loads
        .iter()
        .map(panel)
        .filter(|p| !p.rows.is_empty())
        .collect();
    let legend = ["balancer", "servers", "load generator"].map(str::to_owned);
    panels(subject, &all, 60, &legend, |bed, target, parts, row| {
        stack(bed, parts, row, |part| short(part.round()))?;
        let sum: f64 = parts.iter().sum();
        let style = Style::new(TEXT).bold(subject.target_styles[target].is_strong);
        bed.words(sum, row, 8, &short(sum), style)
    })
}

/// Draws parts side by side, each with its number if it fits.
fn stack(bed: &TestBed, parts: &[f64], row: f64, words: impl Fn(f64) -> String) -> Result<()> {
    let mut from = 0.0;
    for (index, part) in parts.iter().enumerate() {
        let until = from + part;
        bed.bar((from, until), row, 0.34, PARTS[index % PARTS.len()])?;
        let (left, right) = (bed.position(from, row).0, bed.position(until, row).0);
        let words = words(*part);
        if (right - left) / SCALE > width_of(&words) + 6 {
            // Dark parts have text in the background color, light ones in the text color.
            let ink = if index < 2 { PAPER } else { TEXT };
            let style = Style::new(ink).to_the(HPos::Center);
            bed.words(f64::midpoint(from, until), row, 0, &words, style)?;
        }
        if index > 0 && *part > 0.0 {
            bed.upright_gap(from, row)?;
        }
        from = until;
    }
    Ok(())
}

impl TestBed<'_, '_, '_> {
    /// Draws the mark for equal shares.
    fn upright_in_row(&self, x: f64, row: f64) -> Result<()> {
        let ends = [self.position(x, row - 0.5), self.position(x, row + 0.5)];
        let style = TEXT.paint().stroke_width(3);
        chart::line(self.area, &ends, Some((2, 2)), style)
    }

    /// Draws a gap between two parts in the background color.
    fn upright_gap(&self, x: f64, row: f64) -> Result<()> {
        let ends = [self.position(x, row - 0.34), self.position(x, row + 0.34)];
        chart::line(self.area, &ends, None, PAPER.paint().stroke_width(3))
    }
}

pub(in crate::bench::report) fn singular(counted: &str) -> &str {
    match counted {
        "queries" => "query",
        other => other.strip_suffix('s').unwrap_or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_legend_takes_several_lines() {
        let words = |length: usize| vec!["x".repeat(length); 4];
        assert_eq!(legend_height(200, &words(5)), HEADING);
        let places = legend_places(200, &words(20));
        assert_eq!((places[0], places[3].0), ((0, 4), 1));
        assert_eq!(legend_height(200, &words(20)), HEADING + LEGEND_LINE);
        assert_eq!(legend_height(200, &[]), 0);
    }

    #[test]
    fn what_is_counted_has_a_singular() {
        assert_eq!(singular("queries"), "query");
        assert_eq!(singular("transactions"), "transaction");
        assert_eq!(singular("work"), "work");
    }
}
