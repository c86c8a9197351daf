//! Defines the problems of a config file: place, description and advice.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Byte range in the file from which a value was read. `None` if it was not read from a file.
pub(crate) type SourceSpan = Option<Range<usize>>;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is not used.
    Error,
    /// The file is used.
    Warning,
}

impl Severity {
    /// Returns the word in messages and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// Problem in a config file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Place in the file.
    pub(crate) span: SourceSpan,
    /// Whether the file can still be used.
    pub(crate) severity: Severity,
    /// Stable code for programs, such as `E_UNKNOWN_KEY`; warnings begin with `W_`.
    pub(crate) code: &'static str,
    /// Description of the problem.
    pub(crate) message: String,
    /// Advice for a correction.
    pub(crate) help: String,
    /// Second place of a contradiction, with its description.
    pub(crate) other: Option<(Range<usize>, String)>,
}

/// Problem as `evenkeel check --json`, the API and the status report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedProblem {
    /// The file, when there is one.
    pub file: Option<String>,
    /// Line, counted from 1.
    pub line: Option<u32>,
    /// Column, counted from 1.
    pub column: Option<u32>,
    /// `error` or `warning`.
    pub severity: String,
    /// A stable code such as `E_UNKNOWN_KEY`.
    pub code: String,
    /// Description of the problem.
    pub message: String,
    /// Advice for a correction.
    pub help: Option<String>,
}

/// All problems of one file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// File as the user named it. `None` for the command line.
    pub(crate) file: Option<String>,
    /// Text of the file, to show its lines.
    pub(crate) text: String,
    /// Problems found so far.
    pub(crate) list: Vec<Problem>,
}

impl Problems {
    /// Creates an empty list.
    pub(crate) fn new(file: Option<&Path>, text: &str) -> Problems {
        let file = file.map(|path| path.display().to_string());
        Problems {
            file,
            text: text.to_owned(),
            list: Vec::new(),
        }
    }

    /// Adds an error.
    pub(crate) fn error(
        &mut self,
        span: &SourceSpan,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> &mut Problem {
        self.push(Severity::Error, span, code, message.into(), help.into())
    }

    /// Adds a warning.
    pub(crate) fn warning(
        &mut self,
        span: &SourceSpan,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> &mut Problem {
        self.push(Severity::Warning, span, code, message.into(), help.into())
    }

    fn push(
        &mut self,
        severity: Severity,
        span: &SourceSpan,
        code: &'static str,
        message: String,
        help: String,
    ) -> &mut Problem {
        let span = span.clone();
        self.list.push(Problem {
            span,
            severity,
            code,
            message,
            help,
            other: None,
        });
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Adds the problems of a file that this one names, all at the place of the name.
    pub(crate) fn of_other_file(&mut self, span: &SourceSpan, other: &Problems) {
        let file = other.file.as_deref().unwrap_or_default();
        for problem in &other.list {
            let at = problem.span.as_ref().map_or(String::new(), |span| {
                let (line, column) = other.line_column(span.start);
                format!(":{line}:{column}")
            });
            let message = format!("{file}{at}: {}", other.whole_message(problem));
            let help = problem.help.clone();
            self.push(problem.severity, span, problem.code, message, help);
        }
    }

    /// Returns whether there is an error, so that the file cannot be used.
    pub(crate) fn has_errors(&self) -> bool {
        self.list
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    /// Returns how many problems have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        let of_severity = self.list.iter().filter(|one| one.severity == severity);
        of_severity.count()
    }

    /// Sorts the problems by their place in the file, and removes repeated ones: a problem of a
    /// cluster is found for each of its services.
    pub(crate) fn sort(&mut self) {
        let mut known: Vec<Problem> = Vec::new();
        for problem in self.list.drain(..) {
            if !known.contains(&problem) {
                known.push(problem);
            }
        }
        self.list = known;
        self.list
            .sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    }

    /// Returns line and column of a byte, both counted from 1. The column counts characters.
    pub(crate) fn line_column(&self, offset: usize) -> (u32, u32) {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
        (line as u32, column as u32)
    }

    /// Returns the problems with their lines and columns.
    pub fn reported(&self) -> Vec<ReportedProblem> {
        self.list
            .iter()
            .map(|problem| self.one_reported(problem))
            .collect()
    }

    fn one_reported(&self, problem: &Problem) -> ReportedProblem {
        let at = problem
            .span
            .as_ref()
            .map(|span| self.line_column(span.start));
        ReportedProblem {
            file: self.file.clone(),
            line: at.map(|(line, _)| line),
            column: at.map(|(_, column)| column),
            severity: problem.severity.name().to_owned(),
            code: problem.code.to_owned(),
            message: self.whole_message(problem),
            help: Some(problem.help.clone()).filter(|help| !help.is_empty()),
        }
    }

    /// Returns the message, with the line of the second place for formats that show one place only.
    pub(crate) fn whole_message(&self, problem: &Problem) -> String {
        match &problem.other {
            Some((span, what)) => {
                let (line, _) = self.line_column(span.start);
                format!("{} ({what} in line {line})", problem.message)
            }
            None => problem.message.clone(),
        }
    }
}

impl Problem {
    /// Sets the second place of a contradiction.
    pub(crate) fn with_other(&mut self, span: &SourceSpan, what: &str) {
        self.other = span.clone().map(|span| (span, what.to_owned()));
    }
}
