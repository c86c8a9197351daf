//! Fault trials on a line of time: when writes failed, and what that time went into.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::Subject;
use super::chart::{
    self, Area, Axis, Frame, SCALE, Style, TEXT_SIZE, WIDTH, chart, drawing, room_for, width_of,
};
use super::palette::{AXIS, GRID, Ink, MUTED, PARTS, TEXT};
use crate::bench::outcome::FaultTrial;
use crate::bench::report::html::Svg;
use crate::bench::report::number::short;
use crate::bench::statistics::{OutageSummary, outage};

const HEADING: i32 = 28;
const FOOT: i32 = 44;
const GAP: i32 = 14;
const LABEL_MOST: i32 = 180;
/// A trial's height; thinner where there are many.
const TRIAL: i32 = 9;
const TRIAL_THIN: i32 = 6;
const MANY: usize = 12;

/// The trials of one target and scenario.
struct Group<'t> {
    title: &'t str,
    /// Below the title, where scenarios differ.
    scenario: &'t str,
    is_strong: bool,
    trials: Vec<&'t FaultTrial>,
    summary: OutageSummary,
    height: i32,
}

/// One line per trial, in groups by target and scenario.
pub(super) fn timeline(subject: &Subject) -> Result<Option<Svg>> {
    let groups = groups(subject);
    let steps = step_names(&groups);
    let ends = groups.iter().flat_map(|group| &group.trials);
    let most = ends.filter_map(|t| t.first_success_ms).fold(0.0, f64::max);
    if groups.is_empty() {
        return Ok(None);
    }
    let frame = Frame {
        left: room_for(
            groups.iter().flat_map(|g| [g.title, g.scenario]),
            LABEL_MOST,
        ) + 16,
        right: 110,
        top: HEADING,
        bottom: FOOT,
    };
    let rows: i32 = groups.iter().map(|group| group.height + GAP).sum();
    let fault = match groups[0].scenario {
        "" => groups[0].summary.scenario.as_str(),
        _ => "the fault",
    };
    let across = Axis::from_zero(most.max(1.0), &format!("ms since {fault}"));
    let svg = drawing(HEADING + rows + FOOT, |area| {
        let chart = chart(area, frame, &across, &Axis::rows(rows as usize))?;
        legend(area, frame.left, &steps)?;
        let at = |ms: f64| chart.plotting_area().map_coordinate(&(ms, 0.0)).0;
        let mut top = frame.top + GAP / 2;
        for group in &groups {
            draw_group(area, frame, group, &steps, top, &at)?;
            top += group.height + GAP;
        }
        Ok(())
    })?;
    Ok(Some(svg))
}

fn groups<'t>(subject: &'t Subject) -> Vec<Group<'t>> {
    let figure = subject.figure;
    let faults = &subject.experiment.faults;
    let several = faults
        .iter()
        .any(|trial| trial.scenario != faults[0].scenario);
    let is_told = figure.scenario.is_none() && several;
    let wanted = |found: &OutageSummary| {
        let scenario = figure.scenario.as_ref();
        let is_target = figure.targets.is_empty() || figure.targets.contains(&found.target);
        is_target && scenario.is_none_or(|scenario| *scenario == found.scenario)
    };
    let group = |summary: OutageSummary| {
        let index = subject.index_of(&summary.target);
        let of_group = |t: &&FaultTrial| {
            t.target == summary.target && t.scenario == summary.scenario && t.failure.is_none()
        };
        let mut trials: Vec<&FaultTrial> = faults.iter().filter(of_group).collect();
        trials.sort_by(|a, b| {
            a.outage_ms()
                .unwrap_or(f64::MAX)
                .total_cmp(&b.outage_ms().unwrap_or(f64::MAX))
        });
        let (title, scenario) = match trials.first() {
            Some(first) => (subject.title(&first.target), first.scenario.as_str()),
            None => ("", ""),
        };
        let thickness = if trials.len() > MANY {
            TRIAL_THIN
        } else {
            TRIAL
        };
        Group {
            title,
            scenario: if is_told { scenario } else { "" },
            is_strong: index.is_some_and(|index| subject.looks[index].is_strong),
            height: (trials.len() as i32 * thickness).max(2 * TEXT_SIZE as i32),
            trials,
            summary,
        }
    };
    let all = outage::summaries(faults, subject.bootstrap);
    let groups = all.into_iter().filter(wanted).map(group);
    groups.filter(|group| !group.trials.is_empty()).collect()
}

fn step_names(groups: &[Group]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in groups.iter().flat_map(|group| &group.summary.steps) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn draw_group(
    area: &Area,
    frame: Frame,
    group: &Group,
    steps: &[String],
    top: i32,
    at: &dyn Fn(f64) -> i32,
) -> Result<()> {
    let middle = top + group.height / 2;
    let below = if group.scenario.is_empty() { 0 } else { 7 };
    chart::row_label(area, frame, middle - below, group.title, group.is_strong)?;
    let style = Style::new(MUTED).to_the(HPos::Right);
    chart::text(area, (frame.left - 8, middle + 8), group.scenario, style)?;
    let thickness = group.height / group.trials.len().max(1) as i32;
    for (index, trial) in group.trials.iter().enumerate() {
        let y = (top + thickness * index as i32) * SCALE;
        let heights = (y, y + (thickness - 1).min(TRIAL) * SCALE);
        draw_trial(area, trial, steps, heights, at)?;
    }
    let (upper, lower) = match group.summary.outage_ms {
        Some(outage) => (
            format!("{} ms", short(outage.middle)),
            format!("longest {}", short(group.summary.longest_ms)),
        ),
        None => ("never ended".to_owned(), String::new()),
    };
    let bold = Style::new(TEXT).bold(group.is_strong);
    let right = WIDTH - frame.right + 8;
    chart::text(area, (right, middle - 7), &upper, bold)?;
    chart::text(area, (right, middle + 8), &lower, Style::new(MUTED))
}

fn draw_trial(
    area: &Area,
    trial: &FaultTrial,
    steps: &[String],
    (upper, lower): (i32, i32),
    at: &dyn Fn(f64) -> i32,
) -> Result<()> {
    let bar = |from: f64, until: f64, ink: Ink| {
        let corners = [(at(from), upper), (at(until).max(at(from) + SCALE), lower)];
        area.draw(&Rectangle::new(corners, ink.paint().filled()))
    };
    if let (Some(error), Some(success)) = (trial.first_error_ms, trial.first_success_ms) {
        let unknown = if trial.steps.is_empty() {
            PARTS[1]
        } else {
            GRID
        };
        bar(error, success, unknown)?;
    }
    for step in &trial.steps {
        let number = steps.iter().position(|name| *name == step.name);
        let ink = PARTS[number.unwrap_or(0) % PARTS.len()];
        bar(step.from_ms, step.to_ms, ink)?;
    }
    if trial.first_error_ms.is_none() {
        let spot = Circle::new(
            (at(0.0) + 2 * SCALE, (upper + lower) / 2),
            2 * SCALE,
            AXIS.paint(),
        );
        area.draw(&spot)?;
    }
    Ok(())
}

fn legend(area: &Area, left: i32, steps: &[String]) -> Result<()> {
    let mut x = left;
    for (index, name) in steps.iter().enumerate() {
        let corners = [(x * SCALE, 8 * SCALE), ((x + 14) * SCALE, 18 * SCALE)];
        let ink = PARTS[index % PARTS.len()];
        area.draw(&Rectangle::new(corners, ink.paint().filled()))?;
        area.draw(&Rectangle::new(corners, AXIS.paint().stroke_width(1)))?;
        chart::text(
            area,
            (x + 20, 13),
            name,
            Style::new(TEXT).to_the(HPos::Left),
        )?;
        x += 34 + width_of(name);
    }
    Ok(())
}
