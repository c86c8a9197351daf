//! Reports errors in the syntax of TOML, with advice.

use crate::problem::Problems;

/// Reports one error per line: later errors in a line mostly result from the first one.
pub(crate) fn syntax_errors(errors: &[toml::de::Error], problems: &mut Problems) {
    let mut line_before = None;
    for error in errors {
        let span = error.span();
        let line = span.as_ref().map(|span| problems.line_column(span.start).0);
        if line.is_none() || line != line_before {
            problems.error(
                &span,
                "E_SYNTAX",
                error.message(),
                syntax_help(error.message()),
            );
        }
        line_before = line;
    }
}

fn syntax_help(message: &str) -> &'static str {
    let of = |word: &str| message.contains(word);
    if of("duplicate") {
        "keep one of the two"
    } else if of("string") {
        "put text in double quotes, and write a backslash twice"
    } else if of("equals") || of("`=`") || of("key with no value") {
        "a line is `key = value`"
    } else {
        "the file is TOML (https://toml.io): `key = value`, `[table]`, `[[array of tables]]`"
    }
}
