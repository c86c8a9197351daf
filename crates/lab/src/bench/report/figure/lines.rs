//! Draws a metric over the sweep: one line per target with its band, named at its end.

use std::collections::BTreeMap;

use anyhow::Result;
use plotters::prelude::*;

use super::Subject;
use super::chart::{
    self, Area, Axis, Chart, Frame, SCALE, Style, TEXT_SIZE, WIDTH, chart, drawing, room_for,
};
use super::palette::{AXIS, TEXT, TargetStyle};
use crate::bench::outcome::Load;
use crate::bench::report::html::Svg;
use crate::bench::statistics::{Question, ratio};

const HEIGHT: i32 = 340;
const LABEL_MOST: i32 = 228;
const LABEL_STEP: i32 = 15;

/// A target's values over the sweep: point, low, middle, high.
struct Course {
    target: usize,
    places: Vec<(f64, [f64; 3])>,
}

/// Draws medians, with a band from minimum to maximum over the blocks.
pub(super) fn medians(subject: &Subject, load: &Load) -> Result<Option<Svg>> {
    let courses = subject.each_target(|index, name| {
        let mut places = BTreeMap::new();
        for summary in subject.summaries(name, &load.name) {
            let values = [summary.least, summary.median, summary.most];
            places.insert(summary.point.to_bits(), (summary.point, values));
        }
        Course {
            target: index,
            places: places.into_values().collect(),
        }
    });
    draw(
        subject,
        load,
        courses,
        &subject.figure.metric.label(&load.counted),
        "",
    )
}

/// Draws per cent of the reference within each block, with the interval as a band.
pub(super) fn percent(subject: &Subject, load: &Load) -> Result<Option<Svg>> {
    let Some(reference) = subject.reference(&load.name) else {
        return Ok(None);
    };
    let courses = subject.each_target(|index, name| {
        let at_point = |point: f64| {
            let question = Question {
                load: &load.name,
                metric: subject.figure.metric,
                target: name,
                to: reference,
                points: Some((point, point)),
            };
            let found = ratio(&subject.cells, &question, subject.bootstrap)?;
            Some((
                point,
                [found.low, found.middle, found.high].map(|r| 100.0 * r),
            ))
        };
        let points = subject.points(&load.name);
        Course {
            target: index,
            places: points.into_iter().filter_map(at_point).collect(),
        }
    });
    let label = format!(
        "{}, % of {}",
        subject.figure.metric.label(&load.counted),
        subject.title(reference)
    );
    draw(subject, load, courses, &label, "%")
}

fn draw(
    subject: &Subject,
    load: &Load,
    mut courses: Vec<Course>,
    label: &str,
    unit: &'static str,
) -> Result<Option<Svg>> {
    courses.retain(|course| !course.places.is_empty());
    let mut points: Vec<f64> = courses
        .iter()
        .flat_map(|course| course.places.iter().map(|(point, _)| *point))
        .collect();
    points.sort_by(f64::total_cmp);
    points.dedup();
    // A single point makes no line: the bars show it.
    if points.len() < 2 {
        return Ok(None);
    }
    let titles = courses.iter().map(|course| subject.title_of(course.target));
    let frame = Frame {
        left: 58,
        right: room_for(titles, LABEL_MOST) + 26,
        top: 26,
        bottom: 44,
    };
    let highest = |course: &Course| course.places.iter().map(|(_, v)| v[2]).fold(0.0, f64::max);
    let most = courses.iter().map(highest).fold(0.0, f64::max);
    let across = Axis::of_points(&points, WIDTH - frame.left - frame.right, &load.axis);
    let upwards = Axis::from_zero(most, label).with_unit(unit);
    let svg = drawing(HEIGHT, |area| {
        let chart = chart(area, frame, &across, &upwards)?;
        if unit == "%" {
            level(area, &chart, &across, 100.0)?;
        }
        for course in &courses {
            band(area, &chart, course, subject.target_styles[course.target])?;
        }
        // The most important line is drawn last, over the others.
        courses.sort_by_key(|course| subject.target_styles[course.target].is_strong);
        for course in &courses {
            stroke(area, &chart, course, subject.target_styles[course.target])?;
        }
        name_ends(area, &chart, subject, &courses, frame)
    })?;
    Ok(Some(svg))
}

/// Draws a thin horizontal line at the value that counts as equal.
fn level(area: &Area, chart: &Chart, across: &Axis, value: f64) -> Result<()> {
    let ends = [across.range.start, across.range.end].map(|x| position(chart, (x, value)));
    chart::line(
        area,
        &ends,
        Some((2, 3)),
        AXIS.paint().stroke_width(SCALE as u32),
    )
}

fn band(area: &Area, chart: &Chart, course: &Course, target_style: TargetStyle) -> Result<()> {
    let lower = course.places.iter().map(|(x, values)| (*x, values[0]));
    let upper = course
        .places
        .iter()
        .rev()
        .map(|(x, values)| (*x, values[2]));
    let outline: Vec<(i32, i32)> = lower.chain(upper).map(|p| position(chart, p)).collect();
    area.draw(&Polygon::new(
        outline,
        target_style.ink.paint().mix(0.13).filled(),
    ))?;
    Ok(())
}

fn stroke(area: &Area, chart: &Chart, course: &Course, target_style: TargetStyle) -> Result<()> {
    let places: Vec<(i32, i32)> = course
        .places
        .iter()
        .map(|(x, values)| position(chart, (*x, values[1])))
        .collect();
    let width = if target_style.is_strong { 5 } else { 3 };
    chart::line(
        area,
        &places,
        target_style.dash,
        target_style.ink.paint().stroke_width(width),
    )?;
    // Many points need only enough markers to distinguish the lines.
    let every = places.len().div_ceil(12);
    for (index, at) in places.iter().enumerate() {
        if index % every == 0 || index + 1 == places.len() {
            chart::marker(area, *at, target_style.marker, target_style.ink)?;
        }
    }
    Ok(())
}

/// Draws each line's name at its end; names of close ends are moved apart.
fn name_ends(
    area: &Area,
    chart: &Chart,
    subject: &Subject,
    courses: &[Course],
    frame: Frame,
) -> Result<()> {
    let mut ends: Vec<(usize, (i32, i32))> = courses
        .iter()
        .filter_map(|course| {
            let (x, values) = course.places.last()?;
            Some((course.target, position(chart, (*x, values[1]))))
        })
        .collect();
    ends.sort_by_key(|(_, (_, y))| *y);
    let wanted: Vec<i32> = ends.iter().map(|(_, (_, y))| y / SCALE).collect();
    let heights = apart(&wanted, LABEL_STEP, (frame.top, HEIGHT - frame.bottom));
    let left = WIDTH - frame.right + 18;
    for ((target, (x, y)), height) in ends.into_iter().zip(heights) {
        let target_style = subject.target_styles[target];
        let thin = target_style.ink.paint().mix(0.6).stroke_width(SCALE as u32);
        let label = ((left - 3) * SCALE, height * SCALE);
        chart::line(area, &[(x + 6 * SCALE, y), label], None, thin)?;
        let style = Style {
            size: TEXT_SIZE,
            ..Style::new(if target_style.is_strong {
                target_style.ink
            } else {
                TEXT
            })
            .bold(target_style.is_strong)
        };
        let words = chart::cut(subject.title_of(target), LABEL_MOST);
        chart::text(area, (left, height), &words, style)?;
    }
    Ok(())
}

/// Returns heights at least `step` apart and within the limits, each as near as possible to the
/// wanted one; `wanted` is ascending.
fn apart(wanted: &[i32], step: i32, (from, until): (i32, i32)) -> Vec<i32> {
    let mut heights = wanted.to_vec();
    let mut free = from;
    for height in &mut heights {
        *height = (*height).max(free);
        free = *height + step;
    }
    let mut limit = until;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(limit);
        limit = *height - step;
    }
    heights
}

fn position(chart: &Chart, at: (f64, f64)) -> (i32, i32) {
    chart.plotting_area().map_coordinate(&at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_move_apart_and_stay_within() {
        assert_eq!(apart(&[10, 50, 90], 15, (0, 100)), [10, 50, 90]);
        assert_eq!(apart(&[50, 50, 50], 15, (0, 100)), [50, 65, 80]);
        assert_eq!(apart(&[95, 98, 99], 15, (0, 100)), [70, 85, 100]);
    }
}
