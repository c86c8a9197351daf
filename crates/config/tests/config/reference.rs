//! Compares the tables of the reference pages with the keys of the program.
//!
//! `cargo xtask reference` sets `EVENKEEL_WRITE_REFERENCE`: then the tables are written instead.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_config::keys::{Absent, Key, Kind, SECTIONS, Section, USER};

const PAGES: [&str; 3] = [
    "configuration-reference.md",
    "configuration-http.md",
    "configuration-database.md",
];

const HEAD: [&str; 2] = ["| key | default | limits | meaning |", "|---|---|---|---|"];

/// Returns whether files are written instead of compared.
pub(crate) fn writes() -> bool {
    std::env::var_os("EVENKEEL_WRITE_REFERENCE").is_some()
}

pub(crate) fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares the content of a file in `docs` with what it has to be, or writes it.
#[track_caller]
pub(crate) fn compare(name: &str, text: &str) {
    let path = docs().join(name);
    if writes() {
        fs::write(path, text).expect("a file can be written");
        return;
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).find(|(a, b)| a != b);
    assert!(
        found == text,
        "docs/{name} differs: run `cargo xtask reference`\n{differs:#?}"
    );
}

#[test]
fn the_tables_in_the_documentation_are_those_of_the_program() {
    for page in PAGES {
        let text = fs::read_to_string(docs().join(page)).expect(page);
        compare(page, &with_tables(&text));
    }
}

/// Returns a page with the table of each section that a heading names.
fn with_tables(text: &str) -> String {
    let mut chapters = text.split("\n## ");
    let mut out = chapters.next().unwrap_or_default().to_owned();
    for chapter in chapters {
        let title = chapter.lines().next().unwrap_or_default();
        let first = title.split(", ").next().unwrap_or_default();
        let of = |section: &&Section| capitalized(section.title) == first;
        let section = SECTIONS.into_iter().chain([&USER]).find(of);
        out.push_str("\n## ");
        match section {
            Some(section) => out.push_str(&with_table(chapter, section)),
            None => out.push_str(chapter),
        }
    }
    out
}

fn with_table(chapter: &str, section: &Section) -> String {
    let (before, rest) = chapter
        .split_once(HEAD[0])
        .unwrap_or_else(|| panic!("no table in {chapter}"));
    let after = rest.split_once("\n\n").map(|(_, after)| after);
    let rows: Vec<_> = section.keys().map(row).collect();
    let mut table = format!("{before}{}\n{}\n{}\n", HEAD[0], HEAD[1], rows.join("\n"));
    if let Some(after) = after {
        table.push('\n');
        table.push_str(after);
    }
    table
}

fn row(key: &Key) -> String {
    let cell = |text: String| match text.is_empty() {
        true => String::new(),
        false => format!(" {text}"),
    };
    let default = cell(default(key));
    let (name, limits, meaning) = (key.name, limits(key.kind), cell(meaning(key)));
    format!("| `{name}` |{default} | {limits} |{meaning} |")
}

fn default(key: &Key) -> String {
    let written = match key.absent {
        Absent::Required => return "required".to_owned(),
        Absent::Described => return String::new(),
        Absent::Default(written) => written(),
    };
    match written.trim_matches('"') {
        list if list.starts_with('[') => format!("`{list}`"),
        word if word != written => format!("`{word}`"),
        number => number.to_owned(),
    }
}

fn limits(kind: Kind) -> String {
    match kind {
        Kind::Number(min, max) => format!("{min} to {max}"),
        Kind::Flag => "true, false".to_owned(),
        Kind::Word(words) | Kind::Words(words) => {
            let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            quoted.join(", ")
        }
        Kind::WordOrTexts(words, texts) => format!("{}, or {texts}", limits(Kind::Word(words))),
        Kind::Text(limits)
        | Kind::Texts(limits)
        | Kind::Codes(limits)
        | Kind::Names(limits)
        | Kind::Entries(limits, _)
        | Kind::Entry(limits, _) => limits.to_owned(),
        Kind::Table(_) => "table".to_owned(),
        Kind::Tables(_) | Kind::NamedTables(_) => "tables".to_owned(),
    }
}

fn meaning(key: &Key) -> String {
    let doc: Vec<_> = key.doc.iter().map(|line| line.trim()).collect();
    let mut text = doc.join(" ");
    if let Kind::Table(section) | Kind::Tables(section) | Kind::NamedTables(section) = key.kind {
        let joint = if text.is_empty() { "" } else { ": " };
        text = format!("`{}`{joint}{text}", section.title);
    }
    match key.protocols.is_empty() {
        true => text,
        false => format!("{}: {text}", key.protocols.join(", ")),
    }
}

fn capitalized(title: &str) -> String {
    let (first, rest) = title.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}
