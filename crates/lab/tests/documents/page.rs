//! Reads the pages of the documentation: their code blocks, each with its place.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A code block of a page.
pub(crate) struct Block {
    pub(crate) location: Location,
    /// The first word of the block's opening line; empty for an indented block.
    pub(crate) language: String,
    /// The other words of the opening line, which readers do not see.
    pub(crate) words: Vec<String>,
    /// The lines, without the indentation of the block.
    pub(crate) lines: Vec<String>,
}

impl Block {
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|own| own == word)
    }
}

/// A line of a page, counted from 1.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) page: String,
    pub(crate) line: usize,
}

impl Location {
    /// Returns the place `lines` below this one.
    pub(crate) fn below(&self, lines: usize) -> Location {
        Location {
            page: self.page.clone(),
            line: self.line + lines,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.page, self.line)
    }
}

/// Returns the name and the text of README.md and of each page of docs/.
pub(crate) fn pages() -> Vec<(String, String)> {
    let read = |path: &Path| {
        let text = fs::read_to_string(path).expect("a page can be read");
        let name = path.strip_prefix(repository()).expect("it is a part");
        (name.display().to_string(), text)
    };
    let entries = fs::read_dir(repository().join("docs")).expect("there is documentation");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.push(repository().join("README.md"));
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("crates/lab is a part of it")
}

/// Returns the fenced and the indented blocks of a page.
pub(crate) fn blocks(page: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut fence: Option<usize> = None;
    let mut last_was_indented = false;
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let indentation = line.len() - content.len();
        let is_indented = indentation >= 4 && !content.is_empty();
        match (fence, content.strip_prefix("```")) {
            (None, Some(info)) => {
                blocks.push(fenced(page, index + 2, info));
                fence = Some(indentation);
            }
            (Some(_), Some("")) => fence = None,
            (Some(outer), _) => {
                let line = line.get(outer.min(indentation)..).unwrap_or_default();
                let block = blocks.last_mut().expect("a fence began a block");
                block.lines.push(line.to_owned());
            }
            (None, None) if is_indented => {
                if !last_was_indented {
                    blocks.push(fenced(page, index + 1, ""));
                }
                let block = blocks.last_mut().expect("there is a block");
                block.lines.push(content.to_owned());
            }
            (None, None) => {}
        }
        last_was_indented = fence.is_none() && is_indented;
    }
    blocks
}

fn fenced(page: &str, line: usize, info: &str) -> Block {
    let mut words = info
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .map(str::to_owned);
    Block {
        location: Location {
            page: page.to_owned(),
            line,
        },
        language: words.next().unwrap_or_default(),
        words: words.collect(),
        lines: Vec::new(),
    }
}
