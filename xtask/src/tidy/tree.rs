//! The files that belong to the repository: tracked ones, and new ones that are not ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// Paths from the root, with `/`, and their text.
#[derive(Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads what git knows or would add; without git, everything but hidden and built files.
    pub(crate) fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        for path in git_paths(root).map_or_else(|| walked_paths(root), Ok)? {
            // A file that git still lists may be deleted, or a link to nowhere.
            if let Ok(bytes) = fs::read(root.join(&path)) {
                tree.files
                    .insert(path, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        Ok(tree)
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let owned = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Tree {
            files: owned.collect(),
        }
    }

    /// Every file: path and text.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The files whose path ends with `ending`.
    pub(crate) fn ending(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.ends_with(ending))
    }

    /// The files below `folder` (which ends with `/`).
    pub(crate) fn below(&self, folder: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files()
            .filter(move |(path, _)| path.starts_with(folder))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a folder of the repository.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty() || self.files.contains_key(path) || self.below(&folder).next().is_some()
    }
}

fn git_paths(root: &Path) -> Option<Vec<String>> {
    let arguments = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = Command::new("git")
        .current_dir(root)
        .args(arguments)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(listing.split_terminator('\0').map(str::to_owned).collect())
}

fn walked_paths(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            if !entry.file_type()?.is_dir() {
                paths.push(path);
            } else if name != "target" && !name.starts_with('.') {
                folders.push(path);
            }
        }
    }
    Ok(paths)
}
