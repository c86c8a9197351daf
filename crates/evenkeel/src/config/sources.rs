//! Reads the files that a config file names: passwords, certificates, users.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::plan::Secret;
use super::problem::{Problems, SourceSpan};
use super::reader::Table;

/// More than this is another file given by mistake.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a file's reading depends on beside its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Relative paths begin here.
    pub directory: PathBuf,
    /// Everybody on the machine may read the file.
    pub world_readable: bool,
}

impl Sources {
    /// A path in the file, seen from the file.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.directory.join(text)
    }

    /// Notes a file that cannot be read.
    fn open(&self, path: &Path, place: &SourceSpan, problems: &mut Problems) -> Option<Opened> {
        let error = match Opened::of(path) {
            Ok(opened) => return Some(opened),
            Err(error) => error,
        };
        let message = format!("cannot read {}: {}", path.display(), plain(&error));
        problems.error(place, "E_FILE", message, file_help(&error));
        None
    }

    /// The whole text of a file.
    pub(super) fn text(
        &self,
        path: &Path,
        place: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let opened = self.open(path, place, problems)?;
        opened.text(path, place, problems)
    }

    /// The same, with a warning if everybody can read it.
    pub(super) fn secret_text(
        &self,
        path: &Path,
        place: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let opened = self.open(path, place, problems)?;
        if opened.mode & 0o004 != 0 {
            let file = path.display();
            let message = format!("{file} is readable by everyone on this machine");
            let help = format!("`chmod 600 {file}`");
            problems.warning(place, "W_SECRET_READABLE", message, help);
        }
        opened.text(path, place, problems)
    }

    /// The same, but it is not read if anybody except its owner may touch it.
    pub(super) fn private_text(
        &self,
        path: &Path,
        place: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let opened = self.open(path, place, problems)?;
        if opened.mode & 0o077 != 0 {
            let file = path.display();
            let mode = opened.mode & 0o777;
            let message =
                format!("{file} has mode {mode:04o}, but must be accessible by its owner only");
            let help = format!("`chmod 600 {file}`; its owner must be the user evenkeel runs as");
            problems.error(place, "E_SECRET_READABLE", message, help);
            return None;
        }
        opened.text(path, place, problems)
    }

    /// A secret, written in the file or kept in a file of its own.
    pub(super) fn secret(
        &self,
        table: &Table<'_>,
        key: &str,
        file_key: &str,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let literal = table.text(key, problems);
        let named = table.text(file_key, problems);
        if table.value(key).is_some() && table.value(file_key).is_some() {
            let message = format!("both `{key}` and `{file_key}` are set");
            let help = format!("keep one; `{file_key}` keeps the secret out of this file");
            let problem = problems.error(&table.key_span(file_key), "E_BOTH", message, help);
            problem.with_other(&table.key_span(key), &format!("`{key}` is set"));
            return None;
        }
        if literal.is_some() && self.world_readable {
            let message =
                format!("`{key}` is in a file that is readable by everyone on this machine");
            let help = format!("`chmod o-r` the file, or use `{file_key}`");
            problems.warning(&table.key_span(key), "W_SECRET_READABLE", message, help);
        }
        match named {
            Some(name) => self.secret_file(name, &table.value_span(file_key), problems),
            None => literal.map(|text| Secret::new(text.to_owned())),
        }
    }

    fn secret_file(
        &self,
        name: &str,
        place: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let path = self.path(name);
        let text = self.secret_text(&path, place, problems)?;
        let secret = text.expose().trim_end_matches(['\r', '\n']);
        if secret.is_empty() || secret.contains('\n') {
            let message = format!("{} must contain exactly one line", path.display());
            let help = "it must hold the secret and nothing else";
            problems.error(place, "E_FILE", message, help);
            return None;
        }
        Some(Secret::new(secret.to_owned()))
    }
}

/// What was looked at is what is read, whatever is put in its place meanwhile.
struct Opened {
    file: fs::File,
    mode: u32,
}

impl Opened {
    fn of(path: &Path) -> io::Result<Opened> {
        let file = fs::File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        if metadata.len() > FILE_BYTES_MAX {
            let message = format!("it has {} bytes: is it the right file?", metadata.len());
            return Err(io::Error::other(message));
        }
        let mode = metadata.permissions().mode();
        Ok(Opened { file, mode })
    }

    fn text(mut self, path: &Path, place: &SourceSpan, problems: &mut Problems) -> Option<Secret> {
        let mut text = String::new();
        if let Err(error) = self.file.read_to_string(&mut text) {
            let message = format!("cannot read {}: {}", path.display(), plain(&error));
            problems.error(place, "E_FILE", message, file_help(&error));
            return None;
        }
        Some(Secret::new(text))
    }
}

pub(super) fn is_world_readable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// The system's words without the number.
pub(super) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

pub(super) fn file_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "check the path; relative paths begin at the config file's directory"
        }
        io::ErrorKind::PermissionDenied => "make it readable for the user evenkeel runs as",
        io::ErrorKind::InvalidData => "it must be text: certificates and keys as PEM, not DER",
        _ => "it must be a file that evenkeel can read",
    }
}
