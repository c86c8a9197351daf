//! Reads the settings of a startup message: its parameters, and those within `options`.

use thiserror::Error;

use super::interner::SettingSetBuilder;
use super::{Interner, SettingSet, values};

/// Parameters of the startup message that are not settings.
const NOT_SETTINGS: [&[u8]; 4] = [b"database", b"options", b"replication", b"user"];

/// Error in the settings of a startup message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StartupError {
    /// A switch that is not `-c` or `--`.
    #[error("unsupported switch in startup options: {0}; use -c name=value")]
    Switch(String),
    /// A `-c` without a name or value.
    #[error("-c {0} requires a value: -c name=value")]
    NoValue(String),
    /// A name that is not valid, or a value that is not UTF-8.
    #[error("invalid startup parameter {0:?}")]
    Unreadable(String),
}

/// Returns the settings of a startup message, in the order of its parameters. Parameters whose
/// names begin with `_pq_.` belong to the protocol and are skipped.
///
/// # Errors
///
/// Fails for settings that cannot be read, or that a server would reject as well. Only a server can
/// check names and values, see [`super::AcceptedSettings`].
pub fn from_startup<'a>(
    parameters: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
    interner: &Interner,
) -> Result<SettingSet, StartupError> {
    let mut builder = SettingSetBuilder::default();
    for (_, options) in parameters.clone().filter(|(name, _)| *name == b"options") {
        read_options(options, &mut builder)?;
    }
    let is_setting = |name: &[u8]| !NOT_SETTINGS.contains(&name) && !name.starts_with(b"_pq_.");
    for (name, value) in parameters.filter(|(name, _)| is_setting(name)) {
        put(&mut builder, name, value)?;
    }
    Ok(interner.intern(builder))
}

fn put(builder: &mut SettingSetBuilder, name: &[u8], value: &[u8]) -> Result<(), StartupError> {
    let readable = str::from_utf8(value).is_ok();
    let known = values::name(name).filter(|_| readable);
    let known = known.ok_or_else(|| StartupError::Unreadable(lossy(name)))?;
    builder.set(&known, value);
    Ok(())
}

/// Reads `-c name=value`, `-cname=value` and `--name=value`, separated by blanks.
fn read_options(options: &[u8], builder: &mut SettingSetBuilder) -> Result<(), StartupError> {
    let words = split(options);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let assignment: &[u8] = match &**word {
            [b'-', b'c'] => words.next().map(|next| &**next).unwrap_or_default(),
            [b'-', b'c', assignment @ ..] | [b'-', b'-', assignment @ ..] => assignment,
            _ => return Err(StartupError::Switch(lossy(word))),
        };
        let equals = assignment.iter().position(|byte| *byte == b'=');
        let (name, value) = equals
            .and_then(|index| assignment.split_at_checked(index))
            .ok_or_else(|| StartupError::NoValue(lossy(assignment)))?;
        let name: Vec<u8> = name
            .iter()
            .map(|byte| if *byte == b'-' { b'_' } else { *byte })
            .collect();
        put(builder, &name, value.get(1..).unwrap_or_default())?;
    }
    Ok(())
}

/// Splits at blanks; a backslash makes the next byte an ordinary one.
fn split(options: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = options.iter();
    while let Some(byte) = bytes.next() {
        let blank = byte.is_ascii_whitespace() || *byte == 0x0b;
        if blank {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'\\' => word.extend(bytes.next()),
            other => word.push(*other),
        }
    }
    words.extend(word);
    words
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
