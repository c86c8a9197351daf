//! Compares the errors of the program with the tables of `docs/errors.md`.

const PAGE: &str = include_str!("../../../../docs/errors.md");

/// Asserts that each reply (code and message) has exactly one row below `heading`, and that each
/// row has a reply. `…` in a row matches any text.
#[track_caller]
pub(super) fn check(heading: &str, replies: &[(String, String)]) {
    let rows = rows(heading);
    let mut used = vec![false; rows.len()];
    for (code, message) in replies {
        let matching =
            |(row_code, pattern): &&(String, String)| row_code == code && matches(pattern, message);
        let found: Vec<_> = rows.iter().filter(matching).collect();
        assert_eq!(found.len(), 1, "rows of {heading} for {code} {message:?}");
        for (row, used) in rows.iter().zip(&mut used) {
            *used |= matching(&row);
        }
    }
    for (row, used) in rows.iter().zip(used) {
        assert!(used, "{heading}: no error of the program is {row:?}");
    }
}

/// Returns the code and the message of each row of the first table below `heading`.
fn rows(heading: &str) -> Vec<(String, String)> {
    let (_, section) = PAGE
        .split_once(&format!("\n## {heading}\n"))
        .expect("a section of docs/errors.md");
    let section = section.split("\n## ").next().unwrap_or_default();
    let table = section.lines().filter(|line| line.starts_with("| `"));
    table
        .map(|line| {
            let mut cells = line.split('`').skip(1).step_by(2).map(str::to_owned);
            (
                cells.next().expect("a code"),
                cells.next().expect("a message"),
            )
        })
        .collect()
}

fn matches(pattern: &str, message: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = message.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        match rest.find(part) {
            Some(at) if !(is_last && part.is_empty()) => rest = &rest[at + part.len()..],
            Some(_) => rest = "",
            None => return false,
        }
    }
    rest.is_empty()
}
