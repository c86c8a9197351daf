//! Checks that each protocol of a service has all of its parts.

use super::rust::code;
use super::{Problem, Tree};

/// The file that declares the protocols.
const PLAN: &str = "crates/evenkeel/src/config/plan/protocol.rs";

/// Parts of a database protocol. `NAME` is the word in the configuration; a path that ends with `*`
/// is the beginning of a file's name.
const SQL_PARTS: [(&str, &str); 7] = [
    ("codec", "crates/wire/src/NAME.rs"),
    ("analysis of statements", "crates/sql/src/NAME.rs"),
    ("session", "crates/proxy/src/session/NAME.rs"),
    ("probe", "crates/monitor/src/probe/NAME.rs"),
    ("fuzz target", "fuzz/fuzz_targets/NAME_*"),
    ("server of the lab", "crates/lab/src/NAME.rs"),
    ("page", "docs/differences-NAME.md"),
];

/// Parts of a protocol without statements.
const OTHER_PARTS: [(&str, &str); 2] = [
    ("session", "crates/proxy/src/session/NAME.rs"),
    ("probe", "crates/monitor/src/probe/NAME.rs"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(plan) = tree.text(PLAN) else {
        return Vec::new();
    };
    let plan = code(plan);
    let mut problems = missing(tree, &variants(&plan, "SqlProtocol"), &SQL_PARTS);
    let mut others = variants(&plan, "Protocol");
    others.retain(|name| name != "sql");
    problems.extend(missing(tree, &others, &OTHER_PARTS));
    problems
}

/// Returns the variants of an enum in lower case.
fn variants(code: &str, name: &str) -> Vec<String> {
    let start = format!("enum {name} {{");
    let Some((_, rest)) = code.split_once(&start) else {
        return Vec::new();
    };
    let body = rest.split("\n}").next().unwrap_or_default();
    let first_word = |line: &str| {
        let word: String = line
            .trim()
            .chars()
            .take_while(|c| c.is_alphanumeric())
            .collect();
        (!word.is_empty()).then(|| word.to_lowercase())
    };
    body.lines().filter_map(first_word).collect()
}

fn missing(tree: &Tree, protocols: &[String], parts: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for protocol in protocols {
        for (part, path) in parts {
            let path = path.replace("NAME", protocol);
            let exists = match path.strip_suffix('*') {
                Some(start) => tree.below(start).next().is_some(),
                None => tree.has(&path),
            };
            if !exists {
                let what = format!("protocol `{protocol}` has no {part}: add {path}");
                problems.push(Problem::new(PLAN, 1, what));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const ENUMS: &str = "pub enum Protocol {\n    /// None.\n    Tcp,\n    Sql(Box<Plan>),\n}\n\
                         pub enum SqlProtocol {\n    Mysql,\n}\n";

    #[test]
    fn each_missing_part_is_found() {
        let complete = [
            (PLAN, ENUMS),
            ("crates/proxy/src/session/tcp.rs", ""),
            ("crates/monitor/src/probe/tcp.rs", ""),
            ("crates/wire/src/mysql.rs", ""),
            ("crates/sql/src/mysql.rs", ""),
            ("crates/proxy/src/session/mysql.rs", ""),
            ("crates/monitor/src/probe/mysql.rs", ""),
            ("fuzz/fuzz_targets/mysql_login.rs", ""),
            ("crates/lab/src/mysql.rs", ""),
            ("docs/differences-mysql.md", ""),
        ];
        assert_found(check, &complete, &[]);
        let place = format!("{PLAN}:1");
        for without in 1..complete.len() {
            let mut files = complete.to_vec();
            let (path, _) = files.remove(without);
            let part = path.trim_end_matches("login.rs");
            assert_found(check, &files, &[(&place, part)]);
        }
    }
}
