//! Reads the files that a config file names: passwords, certificates and users.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::plan::Secret;
use crate::problem::{Problems, SourceSpan};
use crate::reader::Table;

/// Maximum size of such a file. A larger file was named by mistake.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Properties of a config file besides its text, on which the plan depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Directory to which relative paths refer.
    pub directory: PathBuf,
    /// True if all users of the machine may read the file.
    pub world_readable: bool,
}

impl Sources {
    /// Returns a path from the file, relative to the file's directory.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        self.directory.join(text)
    }

    /// Opens a file, or reports that it cannot be read.
    fn open(&self, path: &Path, span: &SourceSpan, problems: &mut Problems) -> Option<Opened> {
        let error = match Opened::of(path) {
            Ok(opened) => return Some(opened),
            Err(error) => error,
        };
        let message = format!("cannot read {}: {}", path.display(), plain(&error));
        problems.error(span, "E_FILE", message, file_help(&error));
        None
    }

    /// Returns the whole text of a file.
    pub(crate) fn text(
        &self,
        path: &Path,
        span: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let opened = self.open(path, span, problems)?;
        opened.text(path, span, problems)
    }

    /// Returns the whole text of a file. Reports an error, without reading it, if more users have
    /// access than a secret allows.
    pub(crate) fn secret_text(
        &self,
        path: &Path,
        span: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let opened = self.open(path, span, problems)?;
        if let Some(why) = opened.access.exposure(&Process::this()) {
            let (file, mode) = (path.display(), opened.access.mode & 0o777);
            let message = format!("{file} has mode {mode:04o}: {why}");
            let help = format!(
                "`chmod 600 {file}`, or `chmod 640` if root or a group of evenkeel's user owns it"
            );
            problems.error(span, "E_SECRET_READABLE", message, help);
            return None;
        }
        opened.text(path, span, problems)
    }

    /// Returns a secret that is set in the config file or stored in a separate file.
    pub(crate) fn secret(
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

    /// Returns the secret that is alone in a file.
    pub(crate) fn secret_file(
        &self,
        name: &str,
        span: &SourceSpan,
        problems: &mut Problems,
    ) -> Option<Secret> {
        let path = self.path(name);
        let text = self.secret_text(&path, span, problems)?;
        let secret = text.expose().trim_end_matches(['\r', '\n']);
        if secret.is_empty() || secret.contains('\n') {
            let message = format!("{} must contain exactly one line", path.display());
            let help = "write only the secret into the file, on one line, without blank lines";
            problems.error(span, "E_FILE", message, help);
            return None;
        }
        Some(Secret::new(secret.to_owned()))
    }
}

/// Open file with its permissions: the checked file is the one that is read, even if its path is
/// replaced meanwhile.
struct Opened {
    file: fs::File,
    access: Access,
}

/// Owner and permissions of a file.
#[derive(Clone, Copy)]
struct Access {
    uid: u32,
    gid: u32,
    mode: u32,
}

/// User and groups of a process.
struct Process {
    uid: u32,
    groups: Vec<u32>,
}

impl Process {
    fn this() -> Self {
        let mut groups: Vec<_> = rustix::process::getgroups()
            .unwrap_or_default()
            .iter()
            .map(|group| group.as_raw())
            .collect();
        groups.push(rustix::process::getegid().as_raw());
        Self {
            uid: rustix::process::geteuid().as_raw(),
            groups,
        }
    }
}

impl Access {
    /// Describes the access that a secret does not allow. As with PostgreSQL's keys, the group may
    /// read a file of root, and here also a file of a group of the process: Kubernetes and packages
    /// install files with such owners.
    fn exposure(self, process: &Process) -> Option<&'static str> {
        let is_of_ours = process.uid == 0 || process.groups.contains(&self.gid);
        if self.mode & 0o007 != 0 {
            Some("everyone on this machine has access")
        } else if self.mode & 0o020 != 0 {
            Some("its group can write to it")
        } else if self.mode & 0o040 != 0 && self.uid != 0 && !is_of_ours {
            Some("its group can read it, and evenkeel's user is not in that group")
        } else {
            None
        }
    }
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
        let access = Access {
            uid: metadata.uid(),
            gid: metadata.gid(),
            mode: metadata.mode(),
        };
        Ok(Opened { file, access })
    }

    fn text(mut self, path: &Path, span: &SourceSpan, problems: &mut Problems) -> Option<Secret> {
        let mut text = String::new();
        if let Err(error) = self.file.read_to_string(&mut text) {
            let message = format!("cannot read {}: {}", path.display(), plain(&error));
            problems.error(span, "E_FILE", message, file_help(&error));
            return None;
        }
        Some(Secret::new(text))
    }
}

pub(crate) fn is_world_readable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

/// Returns the message of the system without the error number.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

pub(crate) fn file_help(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "check the path; relative paths begin at the config file's directory"
        }
        io::ErrorKind::PermissionDenied => "make it readable for the user evenkeel runs as",
        io::ErrorKind::InvalidData => "it must be text: certificates and keys as PEM, not DER",
        _ => "it must be a file that evenkeel can read",
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Process};

    #[test]
    fn a_secret_may_be_read_by_its_owner_and_by_a_group_of_root_or_of_ours() {
        let process = Process {
            uid: 1000,
            groups: vec![50, 60],
        };
        let exposure = |uid, gid, mode| {
            let access = Access { uid, gid, mode };
            access.exposure(&process).unwrap_or("fine")
        };
        for mode in [0o100_600, 0o100_400, 0o640, 0o440] {
            assert_eq!(exposure(1000, 60, mode), "fine", "{mode:o}");
            assert_eq!(exposure(0, 7, mode), "fine", "{mode:o}");
            assert_eq!(exposure(0, 60, mode), "fine", "{mode:o}");
        }
        assert!(exposure(1000, 7, 0o640).contains("not in that group"));
        assert!(exposure(0, 60, 0o644).contains("everyone"));
        assert!(exposure(0, 60, 0o602).contains("everyone"));
        assert!(exposure(0, 60, 0o660).contains("its group can write"));
        let root = Process {
            uid: 0,
            groups: vec![0],
        };
        let of_service = Access {
            uid: 1000,
            gid: 1000,
            mode: 0o640,
        };
        assert_eq!(of_service.exposure(&root), None);
    }
}
