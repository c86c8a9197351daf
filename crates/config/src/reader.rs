//! Reads typed values from a TOML table, and reports invalid ones.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use crate::nearest::nearest;
use crate::problem::{Problems, SourceSpan};
use crate::setting::{Kind, Section};

/// Value with its place in the file.
pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

/// Entry of a table whose keys are names.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    /// Place of the name.
    pub(crate) span: Range<usize>,
    pub(crate) value: &'a Value<'a>,
}

impl<'a> Entry<'a> {
    /// Returns the value as a table with the keys of `section`.
    pub(crate) fn table(
        &self,
        section: &'static Section,
        problems: &mut Problems,
    ) -> Option<Table<'a>> {
        let Some(values) = self.value.get_ref().as_table() else {
            let help = format!("write its keys below a line `{}`", section.title);
            wrong_type(self.name, "a table", self.value, help, problems);
            return None;
        };
        Some(Table::open(section, values, self.span.clone(), problems))
    }
}

/// Table of the file, with its permitted keys.
pub(crate) struct Table<'a> {
    section: &'static Section,
    values: &'a DeTable<'a>,
    /// Place of the table.
    pub(crate) span: SourceSpan,
    /// True if it has an unknown key, which may be a misspelled form of a missing one.
    pub(crate) has_unknown: bool,
}

impl<'a> Table<'a> {
    /// Opens a table, and reports its unknown keys.
    pub(crate) fn open(
        section: &'static Section,
        values: &'a DeTable<'a>,
        span: Range<usize>,
        problems: &mut Problems,
    ) -> Table<'a> {
        let mut has_unknown = false;
        for key in values.keys() {
            if section.key(key.get_ref()).is_none() {
                unknown_key(section, key.get_ref(), &Some(key.span()), problems);
                has_unknown = true;
            }
        }
        Table {
            section,
            values,
            span: Some(span),
            has_unknown,
        }
    }

    /// Returns the title of the table in the file.
    pub(crate) fn title(&self) -> &'static str {
        self.section.title
    }

    pub(crate) fn value(&self, key: &str) -> Option<&'a Value<'a>> {
        debug_assert!(
            self.section.key(key).is_some(),
            "{key} is not in the table of keys"
        );
        self.values
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(_, value)| value)
    }

    /// Returns the keys that services of a protocol do not have, and the protocols that have them.
    pub(crate) fn foreign_keys(&self, protocol: &str) -> Vec<(&'a str, Vec<&'static str>)> {
        let owners = |name: &'a Spanned<DeString<'a>>| {
            let name: &str = name.get_ref();
            let keys = self.section.keys().filter(|key| key.name == name);
            (name, keys.flat_map(|key| key.protocols).copied().collect())
        };
        let mut keys: Vec<(_, Vec<_>)> = self.values.keys().map(owners).collect();
        keys.retain(|(_, owners)| !owners.is_empty() && !owners.contains(&protocol));
        keys
    }

    /// Returns the place of a key.
    pub(crate) fn key_span(&self, key: &str) -> SourceSpan {
        self.values
            .keys()
            .find(|name| name.get_ref() == key)
            .map(Spanned::span)
    }

    /// Returns the place of a key's value.
    pub(crate) fn value_span(&self, key: &str) -> SourceSpan {
        self.value(key).map(Spanned::span)
    }

    /// Returns an integer within the key's bounds.
    pub(crate) fn number(&self, key: &str, problems: &mut Problems) -> Option<u64> {
        let value = self.value(key)?;
        let Some(Kind::Number(min, max)) = self.section.key(key).map(|key| key.kind) else {
            return None;
        };
        let DeValue::Integer(integer) = value.get_ref() else {
            let help = number_help(key, value.get_ref(), min, max);
            wrong_type(key, "a whole number", value, help, problems);
            return None;
        };
        let number = to_u64(integer).filter(|number| (min..=max).contains(number));
        if number.is_none() {
            let message = format!("`{key}` is {integer}, but must be {min} to {max}");
            let help = range_help(key, integer, min, max);
            problems.error(&Some(value.span()), "E_RANGE", message, help);
        }
        number
    }

    /// Returns an integer of up to 32 bits. The bounds in the list of keys must guarantee that.
    pub(crate) fn small_number(&self, key: &str, problems: &mut Problems) -> Option<u32> {
        self.number(key, problems)
            .and_then(|number| u32::try_from(number).ok())
    }

    /// Returns `true` or `false`.
    pub(crate) fn flag(&self, key: &str, problems: &mut Problems) -> Option<bool> {
        let value = self.value(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            let help = format!("write `{key} = true` or `{key} = false`, without quotes");
            wrong_type(key, "true or false", value, help, problems);
        }
        flag
    }

    /// Returns a string without control characters.
    pub(crate) fn text(&self, key: &str, problems: &mut Problems) -> Option<&'a str> {
        let value = self.value(key)?;
        let Some(text) = value.get_ref().as_str() else {
            let help = format!("put it in quotes: `{key} = \"…\"`");
            wrong_type(key, "a string", value, help, problems);
            return None;
        };
        if text.is_empty() || text.chars().any(char::is_control) {
            let what = if text.is_empty() {
                "is empty"
            } else {
                "contains a control character"
            };
            let help = "give it a value, or leave the key out";
            problems.error(
                &Some(value.span()),
                "E_VALUE",
                format!("`{key}` {what}"),
                help,
            );
            return None;
        }
        Some(text)
    }

    /// Returns one of the key's words.
    pub(crate) fn word(&self, key: &str, problems: &mut Problems) -> Option<&'static str> {
        let words = self.section.key(key)?.kind.words();
        let value = self.value(key)?;
        let Some(text) = value.get_ref().as_str() else {
            let help = format!("one of {}, in quotes", listed(words));
            wrong_type(key, "a word", value, help, problems);
            return None;
        };
        if let Some(word) = words.iter().find(|word| **word == text) {
            return Some(word);
        }
        let message = format!("`{text}` is not a value of `{key}`");
        let help = match nearest(text, words.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? It is one of {}", listed(words)),
            None => format!("it is one of {}", listed(words)),
        };
        problems.error(&Some(value.span()), "E_UNKNOWN_WORD", message, help);
        None
    }

    /// Returns the elements of an array. A single value counts as an array of one.
    pub(crate) fn elements(&self, key: &str) -> Vec<&'a Value<'a>> {
        match self.value(key) {
            None => Vec::new(),
            Some(value) => match value.get_ref() {
                DeValue::Array(array) => array.iter().collect(),
                _ => vec![value],
            },
        }
    }

    /// Returns a table within this one.
    pub(crate) fn table(
        &self,
        key: &str,
        section: &'static Section,
        problems: &mut Problems,
    ) -> Option<Table<'a>> {
        let value = self.value(key)?;
        let Some(values) = value.get_ref().as_table() else {
            let help = format!("write its keys below a line `{}`", section.title);
            wrong_type(key, "a table", value, help, problems);
            return None;
        };
        let span = self.key_span(key).unwrap_or(value.span());
        Some(Table::open(section, values, span, problems))
    }

    /// Returns the tables of an array of tables (`[[…]]`).
    pub(crate) fn tables(
        &self,
        key: &str,
        section: &'static Section,
        problems: &mut Problems,
    ) -> Vec<Table<'a>> {
        if let Some(DeValue::Table(_)) = self.value(key).map(Spanned::get_ref) {
            let help = format!(
                "write `{}` with two brackets: there can be several",
                section.title
            );
            let message = format!("`{key}` must be an array of tables");
            problems.error(&self.key_span(key), "E_TYPE", message, help);
            return Vec::new();
        }
        let mut tables = Vec::new();
        for value in self.elements(key) {
            let Some(values) = value.get_ref().as_table() else {
                let help = format!("begin each with `{}`", section.title);
                wrong_type(key, "tables", value, help, problems);
                continue;
            };
            tables.push(Table::open(section, values, value.span(), problems));
        }
        tables
    }

    /// Returns the entries of a table whose keys are arbitrary names. `help` explains its syntax.
    pub(crate) fn entries(&self, key: &str, help: &str, problems: &mut Problems) -> Vec<Entry<'a>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let Some(values) = value.get_ref().as_table() else {
            wrong_type(key, "a table", value, help, problems);
            return Vec::new();
        };
        let entry = |(name, value): (&'a Spanned<DeString<'a>>, &'a Value<'a>)| Entry {
            name: name.get_ref().as_ref(),
            span: name.span(),
            value,
        };
        values.iter().map(entry).collect()
    }
}

/// Reports a value of a type that the key does not accept.
pub(crate) fn wrong_type(
    key: &str,
    wanted: &str,
    value: &Value<'_>,
    help: impl Into<String>,
    problems: &mut Problems,
) {
    let found = match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    };
    let message = format!("`{key}` must be {wanted}, not {found}");
    problems.error(&Some(value.span()), "E_TYPE", message, help);
}

/// Returns words as a list for a message: `a`, `b` or `c`.
pub(crate) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

fn unknown_key(section: &'static Section, key: &str, span: &SourceSpan, problems: &mut Problems) {
    let message = format!("{} has no key `{key}`", section.title);
    problems.error(
        span,
        "E_UNKNOWN_KEY",
        message,
        unknown_key_help(section, key),
    );
}

fn unknown_key_help(section: &'static Section, key: &str) -> String {
    let names = section.keys().map(|key| key.name);
    let elsewhere = section.all.iter().filter(|other| other.key(key).is_some());
    let mut titles: Vec<&str> = elsewhere.map(|other| other.title).collect();
    if titles
        .iter()
        .any(|title| family(title) == family(section.title))
    {
        titles.retain(|title| family(title) == family(section.title));
    }
    if !titles.is_empty() {
        return format!("it belongs to {}", listed(&titles).replace('`', ""));
    }
    if let Some(near) = nearest(key, names.clone()) {
        return format!("did you mean `{near}`?");
    }
    let names: Vec<&str> = names.collect();
    format!("its keys are {}", listed(&names).replace(" or ", " and "))
}

/// Returns the table to which a table belongs: `service` for `[service.health]`.
fn family(title: &str) -> &str {
    let name = title.trim_matches(['[', ']']);
    name.split('.').next().unwrap_or(name)
}

fn to_u64(integer: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(integer.as_str().trim_start_matches('+'), integer.radix()).ok()
}

/// Returns advice for a value that is not an integer, such as `"5s"`, in which the user repeats the
/// unit.
fn number_help(key: &str, value: &DeValue<'_>, min: u64, max: u64) -> String {
    let text = value.as_str().unwrap_or_default().trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].trim() {
        "" => Some(1),
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = digits.trim().parse::<u64>().ok();
    let unit = if key.contains("_ms") {
        " (milliseconds)"
    } else {
        ""
    };
    match number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor))
    {
        Some(number) => format!("write `{key} = {number}`{unit}, without quotes"),
        None => format!("a number from {min} to {max}{unit}, without quotes"),
    }
}

fn range_help(key: &str, integer: &DeInteger<'_>, min: u64, max: u64) -> String {
    let nearest = match to_u64(integer) {
        Some(number) if number > max => max,
        _ if integer.as_str().starts_with('-') => min,
        Some(_) => min,
        None => max,
    };
    let unit = if key.contains("_ms") {
        "; the unit is milliseconds"
    } else {
        ""
    };
    format!("the nearest is {nearest}{unit}")
}
