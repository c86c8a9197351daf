//! Formats problems: with source excerpts on a terminal, and as plain lines elsewhere.

use std::fmt::{self, Write};
use std::io::IsTerminal;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode,
};

use crate::problem::{Problem, Problems, Severity};

/// Style of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Lines that begin with `file:line:column:`.
    Plain,
    /// Source excerpts with frames.
    Drawn {
        /// True for colored output.
        colours: bool,
    },
}

impl Style {
    /// Returns the style for standard error: frames on a terminal, with colors unless NO_COLOR is
    /// set.
    pub fn for_stderr() -> Style {
        if !std::io::stderr().is_terminal() {
            return Style::Plain;
        }
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style::Drawn { colours: !no_color }
    }
}

impl Problems {
    /// Returns all problems as text. Empty if there are none.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        for problem in &self.list {
            match style {
                Style::Plain => self.plain(problem, &mut out),
                Style::Drawn { colours } => self.drawn(problem, colours, &mut out),
            }
        }
        out
    }

    fn plain(&self, problem: &Problem, out: &mut String) {
        let file = self.file.as_deref().unwrap_or("command line");
        let (severity, code) = (problem.severity.name(), problem.code);
        let position = match &problem.span {
            Some(span) => {
                let (line, column) = self.line_column(span.start);
                format!("{file}:{line}:{column}")
            }
            None => file.to_owned(),
        };
        let message = self.whole_message(problem);
        push_line(
            out,
            format_args!("{position}: {severity}[{code}]: {message}"),
        );
        if let Some(span) = &problem.span {
            self.source_line(span, out);
        }
        if !problem.help.is_empty() {
            push_line(out, format_args!("  help: {}", problem.help));
        }
    }

    /// Adds the line, and carets under the characters of the problem.
    fn source_line(&self, span: &std::ops::Range<usize>, out: &mut String) {
        let start = self.text.floor_char_boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.text[start..]
            .find('\n')
            .map_or(self.text.len(), |at| start + at);
        let line = self.text[line_start..line_end].trim_end_matches('\r');
        let end = self
            .text
            .floor_char_boundary(span.end)
            .clamp(start, line_end);
        let (number, _) = self.line_column(start);
        // A tab stays a tab, so that the caret is under its character for any tab width.
        let indent: String = self.text[line_start..start]
            .chars()
            .map(|c| if c == '\t' { c } else { ' ' })
            .collect();
        let carets = "^".repeat(self.text[start..end].chars().count().max(1));
        let margin = " ".repeat(number.to_string().len());
        push_line(out, format_args!("  {number} | {line}"));
        push_line(out, format_args!("  {margin} | {indent}{carets}"));
    }

    fn drawn(&self, problem: &Problem, colours: bool, out: &mut String) {
        let theme = if colours {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let file = self.file.as_deref().unwrap_or("command line");
        let source = NamedSource::new(file, self.text.clone());
        let shown = Shown {
            problem,
            file,
            source: problem.span.is_some().then_some(source),
        };
        let handler = GraphicalReportHandler::new_themed(theme).with_links(false);
        if handler.render_report(out, &shown).is_err() {
            self.plain(problem, out);
        }
    }
}

fn push_line(out: &mut String, line: fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(line);
    out.push('\n');
}

/// Problem in the form that miette displays.
#[derive(Debug)]
struct Shown<'a> {
    problem: &'a Problem,
    file: &'a str,
    source: Option<NamedSource<String>>,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(_) => f.write_str(&self.problem.message),
            None => write!(f, "{}: {}", self.file, self.problem.message),
        }
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        Some(Box::new(self.problem.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.problem.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        let help = &self.problem.help;
        (!help.is_empty()).then(|| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.problem.span.clone()?;
        let primary = LabeledSpan::new_primary_with_span(Some("here".to_owned()), span);
        let other = self.problem.other.as_ref();
        let other =
            other.map(|(span, what)| LabeledSpan::new_with_span(Some(what.clone()), span.clone()));
        Some(Box::new(std::iter::once(primary).chain(other)))
    }
}
