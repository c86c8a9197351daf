//! `wire`, `sql` and `policy` compute: they touch no clock, socket, thread, file or chance.

use super::rust::{code, find_words, inline_tests, line_of};
use super::{Problem, Tree};

const PURE: [&str; 3] = ["crates/wire/src/", "crates/sql/src/", "crates/policy/src/"];

/// Crates of the product without unsafe code.
const SAFE: [&str; 8] = [
    "crates/wire/src/",
    "crates/sql/src/",
    "crates/policy/src/",
    "crates/tls/src/",
    "crates/proxy/src/",
    "crates/monitor/src/",
    "crates/config/src/",
    "crates/evenkeel/src/",
];

const UNSAFE_BLOCKS_MAX: usize = 20;

/// Names that must not occur there, and the remedy.
const BANNED: [(&[&str], &str); 4] = [
    (
        &["Instant::now", "SystemTime", "UNIX_EPOCH"],
        "take the time as an argument",
    ),
    (
        &[
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "UnixStream",
            "UnixListener",
            "UnixDatagram",
            "ToSocketAddrs",
            "std::os",
        ],
        "sockets belong to crates/engine",
    ),
    (
        &["std::thread", "std::fs", "std::env", "std::process"],
        "the caller does this",
    ),
    (
        &[
            "rand::",
            "fastrand",
            "getrandom",
            "thread_rng",
            "RandomState",
        ],
        "take it as an argument",
    ),
];

/// Modules that would escape the list above in a grouped `use std::{…}`.
const BANNED_IN_GROUPS: [&str; 5] = ["thread", "fs", "env", "process", "os"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let pure = tree.ending(".rs").filter(|(path, _)| {
        let shared_tests = path.ends_with("/tests.rs") || path.ends_with("/laws.rs");
        PURE.iter().any(|folder| path.starts_with(folder))
            && !shared_tests
            && !path.contains("/tests/")
            && !path.contains("/laws/")
    });
    let mut problems: Vec<_> = pure
        .flat_map(|(path, text)| check_file(path, text))
        .collect();
    problems.extend(
        SAFE.iter()
            .filter_map(|folder| unsafe_allowed(tree, folder)),
    );
    problems.extend(too_many_unsafe_blocks(tree));
    problems
}

/// The engine is the only crate of the product with unsafe code.
fn too_many_unsafe_blocks(tree: &Tree) -> Option<Problem> {
    let files = tree.ending(".rs");
    let engine = files.filter(|(path, _)| path.starts_with("crates/engine/src/"));
    let count: usize = engine
        .map(|(_, text)| code(text).matches("unsafe {").count())
        .sum();
    let what =
        format!("{count} unsafe blocks, over {UNSAFE_BLOCKS_MAX}: rustix may have a safe form");
    (count > UNSAFE_BLOCKS_MAX).then(|| Problem::new("crates/engine/src/lib.rs", 1, what))
}

/// `deny`, as in the other crates, could be lifted by an attribute further down.
fn unsafe_allowed(tree: &Tree, folder: &str) -> Option<Problem> {
    let path = format!("{folder}lib.rs");
    let code = code(tree.text(&path)?);
    let what = "a crate other than engine and lab begins with #![forbid(unsafe_code)]";
    (!code.contains("#![forbid(unsafe_code)]")).then(|| Problem::new(&path, 1, what))
}

fn check_file(path: &str, text: &str) -> Vec<Problem> {
    let code = code(text);
    let production = inline_tests(&code).map_or(usize::MAX, |line| line - 1);
    let mut found: Vec<(usize, &str, &str)> = Vec::new();
    for (words, instead) in BANNED {
        for word in words {
            let alone = |at: &usize| *word != "rand::" || !code[..*at].ends_with("::");
            let places = find_words(&code, word).filter(alone);
            found.extend(places.map(|at| (line_of(&code, at), *word, instead)));
        }
    }
    found.extend(in_groups(&code).map(|(line, word)| (line, word, "the caller does this")));
    let in_production = found.into_iter().filter(|(line, ..)| *line <= production);
    let problem = |(line, word, instead)| {
        Problem::new(path, line, format!("`{word}` in a pure crate: {instead}"))
    };
    in_production.map(problem).collect()
}

fn in_groups(code: &str) -> impl Iterator<Item = (usize, &'static str)> {
    code.match_indices("use std::{").flat_map(move |(at, _)| {
        let group = code[at..].split(';').next().unwrap_or_default();
        BANNED_IN_GROUPS.into_iter().flat_map(move |word| {
            let top = find_words(group, word).filter(|offset| {
                let before = &group[..*offset];
                let [opened, closed] = ['{', '}'].map(|brace| before.matches(brace).count());
                opened == closed + 1 && !before.ends_with(':')
            });
            top.map(move |offset| (line_of(code, at + offset), word))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const FILE: &str = "crates/policy/src/a.rs";

    #[test]
    fn types_of_addresses_and_time_pass() {
        let text = "use std::net::{IpAddr, SocketAddr};\nuse std::time::Instant;\n\
            // SystemTime is not used\nfn f(rand: u64) { self::rand::next(\"std::fs\") }\n";
        assert_found(
            check,
            &[(FILE, text), ("crates/proxy/src/a.rs", "std::fs::read()")],
            &[],
        );
    }

    #[test]
    fn each_impurity_is_found() {
        let lines = [
            "Instant::now()",
            "use std::time::SystemTime;",
            "std::net::TcpStream::connect(x)",
            "use std::net::{IpAddr, UdpSocket};",
            "use std::os::unix::net::SocketAddr;",
            "std::thread::sleep(x)",
            "use std::fs;",
            "rand::random()",
            "use std::{fmt, fs};",
            "use std::{thread, time};",
        ];
        for line in lines {
            let place = format!("{FILE}:2");
            assert_found(
                check,
                &[(FILE, &format!("\n{line}\n"))],
                &[(&place, "pure crate")],
            );
        }
    }

    #[test]
    fn too_many_unsafe_blocks_of_the_engine_are_found() {
        let blocks = |count: usize| "fn f() { unsafe { g() } }\n".repeat(count);
        let path = "crates/engine/src/ring.rs";
        assert_found(check, &[(path, &blocks(UNSAFE_BLOCKS_MAX))], &[]);
        let more = blocks(UNSAFE_BLOCKS_MAX + 1);
        let expect = [("crates/engine/src/lib.rs:1", "unsafe blocks")];
        assert_found(check, &[(path, &more)], &expect);
    }

    #[test]
    fn a_crate_that_may_have_unsafe_code_is_found() {
        let lib = "crates/wire/src/lib.rs";
        assert_found(
            check,
            &[(lib, "//! Speaks.\n#![forbid(unsafe_code)]\n")],
            &[],
        );
        let text = "//! Speaks.\n// #![forbid(unsafe_code)]\n";
        assert_found(
            check,
            &[(lib, text)],
            &[("crates/wire/src/lib.rs:1", "forbid")],
        );
    }

    #[test]
    fn tests_may_use_threads() {
        let inline = "\n#[cfg(test)]\nmod tests {\n    std::thread::spawn(f);\n}\n";
        let files = [
            (FILE, inline),
            ("crates/wire/src/a/tests.rs", "std::thread::spawn(f)"),
        ];
        assert_found(check, &files, &[]);
        let early = "std::thread::spawn(f);\n#[cfg(test)]\nmod tests {\n}\n";
        assert_found(
            check,
            &[(FILE, early)],
            &[("crates/policy/src/a.rs:1", "std::thread")],
        );
    }
}
