//! Draws fault trials on a time line: the interval of failed writes, and its steps.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::Subject;
use super::chart::{
    self, Area, Axis, Chart, Frame, SCALE, Style, TEXT_SIZE, WIDTH, chart, drawing, room_for,
    row_label,
};
use super::palette::{AXIS, GRID, Ink, MUTED, PARTS, TEXT};
use super::rows::{draw_legend, legend_height};
use crate::bench::outcome::FaultTrial;
use crate::bench::report::html::Svg;
use crate::bench::report::number::short;
use crate::bench::statistics::{OutageSummary, outage};

const FOOT: i32 = 44;
const GAP: i32 = 14;
const LABEL_MOST: i32 = 210;
/// Height of a trial; smaller if there are many.
const TRIAL: i32 = 9;
const TRIAL_THIN: i32 = 6;
const MANY: usize = 12;

/// The trials of one target and scenario.
struct Group<'t> {
    title: &'t str,
    /// Scenario below the title, if scenarios differ.
    scenario: &'t str,
    is_strong: bool,
    trials: Vec<&'t FaultTrial>,
    summary: OutageSummary,
    height: i32,
}

/// Draws one line per trial, grouped by target and scenario.
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
        top: 0,
        bottom: FOOT,
    };
    let frame = Frame {
        top: legend_height(frame.left, &steps).max(GAP),
        ..frame
    };
    let rows: i32 = groups.iter().map(|group| group.height + GAP).sum();
    let fault = match groups[0].scenario {
        "" => groups[0].summary.scenario.as_str(),
        _ => "the fault",
    };
    let across = Axis::across(most.max(1.0), &format!("ms since {fault}"));
    let svg = drawing(frame.top + rows + FOOT, |area| {
        let axes = Axis::rows(rows as usize);
        let timeline = Timeline {
            area,
            frame,
            steps: &steps,
            edge_ms: across.range.end,
            chart: chart(area, frame, &across, &axes)?,
        };
        draw_legend(area, frame.left, &steps)?;
        let mut top = frame.top + GAP / 2;
        for group in &groups {
            timeline.group(group, top)?;
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
            is_strong: index.is_some_and(|index| subject.target_styles[index].is_strong),
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

/// Area of the trials.
struct Timeline<'s, 'b, 'a> {
    area: &'s Area<'a>,
    chart: Chart<'b, 'a>,
    frame: Frame,
    steps: &'s [String],
    /// End of the axis in ms.
    edge_ms: f64,
}

impl Timeline<'_, '_, '_> {
    fn group(&self, group: &Group, top: i32) -> Result<()> {
        let middle = top + group.height / 2;
        self.names(group, middle)?;
        let thickness = group.height / group.trials.len().max(1) as i32;
        for (index, trial) in group.trials.iter().enumerate() {
            let y = (top + thickness * index as i32) * SCALE;
            self.trial(trial, (y, y + (thickness - 1).min(TRIAL) * SCALE))?;
        }
        let (upper, lower) = match group.summary.outage_ms {
            Some(outage) => (
                format!("{} ms", short(outage.middle)),
                format!("longest {}", short(group.summary.longest_ms)),
            ),
            None => ("never ended".to_owned(), String::new()),
        };
        let bold = Style::new(TEXT).bold(group.is_strong);
        let right = WIDTH - self.frame.right + 8;
        chart::text(self.area, (right, middle - 7), &upper, bold)?;
        chart::text(self.area, (right, middle + 8), &lower, Style::new(MUTED))
    }

    fn names(&self, group: &Group, middle: i32) -> Result<()> {
        let (area, frame) = (self.area, self.frame);
        if group.scenario.is_empty() {
            return row_label(area, frame, middle, group.title, group.is_strong);
        }
        row_label(area, frame, middle - 7, group.title, group.is_strong)?;
        let below = Style::new(MUTED).to_the(HPos::Right);
        let words = chart::cut(group.scenario, frame.left - 12);
        chart::text(area, (frame.left - 8, middle + 8), &words, below)
    }

    fn trial(&self, trial: &FaultTrial, (upper, lower): (i32, i32)) -> Result<()> {
        let Some(error_ms) = trial.first_error_ms else {
            let middle = (self.at(0.0) + 2 * SCALE, (upper + lower) / 2);
            let spot = Circle::new(middle, 2 * SCALE, AXIS.paint().filled());
            return Ok(self.area.draw(&spot)?);
        };
        // An outage without an end reaches the edge.
        let success_ms = trial.first_success_ms.unwrap_or(self.edge_ms);
        let unknown = if trial.steps.is_empty() {
            PARTS[1]
        } else {
            GRID
        };
        self.bar((error_ms, success_ms), (upper, lower), unknown)?;
        for step in &trial.steps {
            let number = self.steps.iter().position(|name| *name == step.name);
            let ink = PARTS[number.unwrap_or(0) % PARTS.len()];
            self.bar((step.from_ms, step.to_ms), (upper, lower), ink)?;
        }
        Ok(())
    }

    fn bar(&self, (from, until): (f64, f64), (upper, lower): (i32, i32), ink: Ink) -> Result<()> {
        let left = self.at(from);
        // A step of no duration stays visible.
        let right = self.at(until).max(left + SCALE);
        let bar = Rectangle::new([(left, upper), (right, lower)], ink.paint().filled());
        Ok(self.area.draw(&bar)?)
    }

    fn at(&self, ms: f64) -> i32 {
        self.chart.plotting_area().map_coordinate(&(ms, 0.0)).0
    }
}
