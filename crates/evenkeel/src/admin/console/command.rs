//! What a client of the console says, understood.

use super::session::Complaint;
use super::show::Show;

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// Nothing at all.
    Empty,
    /// A table.
    Show(Show),
    /// The list of commands, as a notice.
    Help,
    /// Drivers set things at their beginning; nothing here depends on them.
    Set,
    Pause(Of),
    Resume(Of),
    Reconnect(Of),
    /// All clients of a database, which is paused.
    Kill(Of),
    KillClient(u64),
    Reload,
}

/// The name behind a command: a database, `service/database`, or nothing for all.
pub(super) type Of = Option<String>;

impl Statement {
    /// The tag of CommandComplete.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Show(_) | Self::Help => "SHOW",
            Self::Set => "SET",
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Reconnect(_) => "RECONNECT",
            Self::Kill(_) => "KILL",
            Self::KillClient(_) => "KILL_CLIENT",
            Self::Reload => "RELOAD",
        }
    }

    pub(super) fn changes(&self) -> bool {
        !matches!(self, Self::Empty | Self::Show(_) | Self::Help | Self::Set)
    }

    pub(super) fn parse(text: &str) -> Result<Self, Complaint> {
        let words = words(text)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((verb, rest)) = words.split_first() else {
            return Ok(Self::Empty);
        };
        let verb = verb.to_ascii_uppercase();
        match (&*verb, rest) {
            ("SHOW", [what]) => Show::named(what)
                .map(|show| show.map_or(Self::Help, Self::Show))
                .ok_or_else(|| unknown(text)),
            ("SET", _) => Ok(Self::Set),
            ("RELOAD", []) => Ok(Self::Reload),
            ("KILL_CLIENT", [id]) => id.parse().map(Self::KillClient).map_err(|_| {
                let message = format!("{id:?} is no client's id: SHOW CLIENTS lists them");
                Complaint::new(b"22023", message)
            }),
            ("KILL", [database]) => Ok(Self::Kill(Some((*database).to_owned()))),
            (verb, [] | [_]) => {
                let of = rest.first().map(|name| (*name).to_owned());
                match verb {
                    "PAUSE" => Ok(Self::Pause(of)),
                    "RESUME" => Ok(Self::Resume(of)),
                    "RECONNECT" => Ok(Self::Reconnect(of)),
                    "KILL" => Ok(Self::Kill(of)),
                    _ => Err(unknown(text)),
                }
            }
            _ => Err(unknown(text)),
        }
    }
}

fn unknown(text: &str) -> Complaint {
    let text: String = text.trim().chars().take(100).collect();
    Complaint::new(
        b"42601",
        format!("the console does not know {text:?}: SHOW HELP lists what it knows"),
    )
}

/// A text's statements.
pub(super) fn statements(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, ';') => {
                all.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[start..]);
    all.retain(|one| !one.trim().is_empty());
    all
}

/// Words, with quotes taken off; a semicolon at the end is no word.
fn words(text: &str) -> Result<Vec<String>, Complaint> {
    let mut words = Vec::new();
    let mut letters = text.trim().trim_end_matches(';').chars().peekable();
    while let Some(letter) = letters.next() {
        if letter.is_whitespace() {
            continue;
        }
        if let '"' | '\'' = letter {
            let mut word = String::new();
            loop {
                match letters.next() {
                    Some(next) if next == letter && letters.peek() == Some(&letter) => {
                        word.push(letter);
                        letters.next();
                    }
                    Some(next) if next == letter => break,
                    Some(next) => word.push(next),
                    None => {
                        let message = format!("a quote is not closed: {}", text.trim());
                        return Err(Complaint::new(b"42601", message));
                    }
                }
            }
            words.push(word);
            continue;
        }
        let mut word = String::from(letter);
        while let Some(next) = letters.next_if(|next| !next.is_whitespace()) {
            word.push(next);
        }
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<Statement>) {
        assert_eq!(Statement::parse(text).ok(), expect, "{text}");
    }

    #[test]
    fn commands_are_understood_in_any_case_and_names_as_they_are_written() {
        check("show pools;", Some(Statement::Show(Show::Pools)));
        check(" SHOW HELP ", Some(Statement::Help));
        check("", Some(Statement::Empty));
        check("Pause Shop", Some(Statement::Pause(Some("Shop".into()))));
        let odd = r#"RESUME "an ""odd"" name""#;
        check(odd, Some(Statement::Resume(Some("an \"odd\" name".into()))));
        check("KILL_CLIENT 17", Some(Statement::KillClient(17)));
        check("KILL", Some(Statement::Kill(None)));
        check("set extra_float_digits = 3", Some(Statement::Set));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in [
            "SELECT 1",
            "SHOW",
            "SHOW MEM",
            "KILL_CLIENT x",
            "PAUSE a b",
            "SHUTDOWN",
            "PAUSE \"a",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn a_text_may_hold_several_statements() {
        assert_eq!(statements("a; b;;\n "), ["a", " b"]);
        assert_eq!(statements("PAUSE \"a;b\""), ["PAUSE \"a;b\""]);
        assert!(statements(" ; ").is_empty());
    }
}
