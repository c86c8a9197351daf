//! Checks that each protocol of a service has all of its parts.

use super::rust::{code, find_words};
use super::{Problem, Tree};

/// The file that lists the protocols.
const LIST: &str = "crates/wire/src/lib.rs";

/// Part of a protocol. `NAME` stands for the protocol's word in the configuration.
struct Part {
    name: &'static str,
    /// Path; one that ends with `*` is the beginning of a file's name.
    path: &'static str,
    /// File that must name the part, and the words that do so. A file of Rust needs them in its
    /// code.
    listed_in: Option<(&'static str, &'static str)>,
}

const PARTS: [Part; 6] = [
    Part {
        name: "codec",
        path: "crates/wire/src/NAME.rs",
        listed_in: Some(("crates/wire/src/lib.rs", "mod NAME")),
    },
    Part {
        name: "session",
        path: "crates/proxy/src/session/NAME.rs",
        listed_in: Some(("crates/proxy/src/session.rs", "mod NAME")),
    },
    Part {
        name: "probe",
        path: "crates/monitor/src/probe/NAME.rs",
        listed_in: Some(("crates/monitor/src/probe.rs", "mod NAME")),
    },
    Part {
        name: "fuzz target",
        path: "fuzz/fuzz_targets/NAME_*",
        listed_in: Some(("fuzz/Cargo.toml", "\"fuzz_targets/NAME_")),
    },
    Part {
        name: "server of the lab",
        path: "crates/lab/src/NAME.rs",
        listed_in: Some(("crates/lab/src/lib.rs", "mod NAME")),
    },
    // The list of pages is checked for all of them.
    Part {
        name: "page",
        path: "docs/differences-NAME.md",
        listed_in: Some(("docs/configuration-reference.md", "`NAME`")),
    },
];

/// Further parts of a database protocol.
const SQL_PARTS: [Part; 1] = [Part {
    name: "analysis of statements",
    path: "crates/sql/src/NAME.rs",
    listed_in: Some(("crates/sql/src/lib.rs", "mod NAME")),
}];

/// Part that a protocol does not have at the usual place.
struct Exception {
    protocol: &'static str,
    part: &'static str,
    /// File in its place, if any.
    instead: Option<&'static str>,
    reason: &'static str,
}

const EXCEPTIONS: [Exception; 5] = [
    Exception {
        protocol: "tcp",
        part: "codec",
        instead: None,
        reason: "its bytes are relayed unparsed",
    },
    Exception {
        protocol: "tcp",
        part: "fuzz target",
        instead: None,
        reason: "there is no codec to test",
    },
    Exception {
        protocol: "tcp",
        part: "server of the lab",
        instead: Some("crates/lab/src/web.rs"),
        reason: "every server is one of TCP; tests use nginx",
    },
    Exception {
        protocol: "http",
        part: "server of the lab",
        instead: Some("crates/lab/src/web.rs"),
        reason: "the web servers serve both protocols",
    },
    Exception {
        protocol: "tcp",
        part: "page",
        instead: Some("docs/configuration.md"),
        reason: "nothing differs from a direct connection",
    },
];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(list) = tree.text(LIST) else {
        return Vec::new();
    };
    let list = code(list);
    let databases = variants(&list, "SqlProtocol");
    let others = variants(&list, "Protocol<D, H>").into_iter();
    let others: Vec<_> = others.filter(|name| name != "sql").collect();
    let mut problems = Vec::new();
    for protocol in others.iter().chain(&databases) {
        problems.extend(missing(tree, protocol, &PARTS));
    }
    for protocol in &databases {
        problems.extend(missing(tree, protocol, &SQL_PARTS));
    }
    problems.extend(stale_exceptions(tree, &others));
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

/// Returns the parts that a protocol lacks, and those that the file of their list does not name.
fn missing(tree: &Tree, protocol: &str, parts: &[Part]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for part in parts {
        let exception = EXCEPTIONS
            .iter()
            .find(|one| one.protocol == protocol && one.part == part.name);
        if exception.is_some() {
            continue;
        }
        let path = part.path.replace("NAME", protocol);
        if !exists(tree, &path) {
            let what = format!("protocol `{protocol}` has no {}: add {path}", part.name);
            problems.push(Problem::new(LIST, 1, what));
        }
        if let Some((file, words)) = part.listed_in {
            let words = words.replace("NAME", protocol);
            if !names(file, tree.text(file).unwrap_or_default(), &words) {
                let what = format!(
                    "does not list the {} of protocol `{protocol}`: add `{words}`",
                    part.name
                );
                problems.push(Problem::new(file, 1, what));
            }
        }
    }
    problems
}

fn exists(tree: &Tree, path: &str) -> bool {
    match path.strip_suffix('*') {
        Some(start) => tree.below(start).next().is_some(),
        None => tree.has(path),
    }
}

fn names(file: &str, text: &str, words: &str) -> bool {
    match file.ends_with(".rs") {
        true => find_words(&code(text), words).next().is_some(),
        false => text.contains(words),
    }
}

/// Returns the exceptions that no protocol needs any more, or whose file is gone.
fn stale_exceptions(tree: &Tree, protocols: &[String]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for exception in &EXCEPTIONS {
        let Exception {
            protocol,
            part,
            instead,
            reason,
        } = exception;
        let usual = PARTS.iter().find(|one| one.name == *part);
        let usual = usual.map(|one| one.path.replace("NAME", protocol));
        let is_needed = usual.is_some_and(|path| !exists(tree, &path));
        if !is_needed || protocols.iter().all(|name| name != protocol) {
            let what = format!("remove the exception for the {part} of protocol `{protocol}`");
            problems.push(Problem::new(LIST, 1, what));
        } else if let Some(path) = instead.filter(|path| !tree.has(path)) {
            let what = format!(
                "protocol `{protocol}` has no {part}: {path} is gone, which serves because {reason}"
            );
            problems.push(Problem::new(LIST, 1, what));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    const ENUMS: &str = "pub mod http;\npub mod mysql;\n\
                         pub enum Protocol<D, H> {\n    /// None.\n    Tcp,\n    Http(H),\n    Sql(D),\n}\n\
                         pub enum SqlProtocol {\n    Mysql,\n}\n";

    /// The files of a repository with one protocol of each kind.
    const COMPLETE: [(&str, &str); 22] = [
        (LIST, ENUMS),
        ("crates/lab/src/lib.rs", "pub mod mysql;"),
        (
            "crates/proxy/src/session.rs",
            "mod mysql;\nmod http;\nmod tcp;",
        ),
        (
            "crates/monitor/src/probe.rs",
            "mod mysql;\nmod http;\nmod tcp;",
        ),
        ("crates/sql/src/lib.rs", "pub mod mysql;"),
        (
            "fuzz/Cargo.toml",
            "\"fuzz_targets/mysql_login.rs\" \"fuzz_targets/http_login.rs\"",
        ),
        ("docs/configuration-reference.md", "`tcp`, `http`, `mysql`"),
        ("crates/proxy/src/session/tcp.rs", ""),
        ("crates/monitor/src/probe/tcp.rs", ""),
        ("crates/lab/src/web.rs", ""),
        ("docs/configuration.md", ""),
        ("crates/wire/src/mysql.rs", ""),
        ("crates/sql/src/mysql.rs", ""),
        ("crates/proxy/src/session/mysql.rs", ""),
        ("crates/monitor/src/probe/mysql.rs", ""),
        ("crates/lab/src/mysql.rs", ""),
        ("docs/differences-mysql.md", ""),
        ("crates/wire/src/http.rs", ""),
        ("crates/proxy/src/session/http.rs", ""),
        ("crates/monitor/src/probe/http.rs", ""),
        ("fuzz/fuzz_targets/http_login.rs", ""),
        ("docs/differences-http.md", ""),
    ];
    const FUZZ_TARGET: (&str, &str) = ("fuzz/fuzz_targets/mysql_login.rs", "");

    fn complete() -> Vec<(&'static str, &'static str)> {
        COMPLETE.into_iter().chain([FUZZ_TARGET]).collect()
    }

    #[test]
    fn each_missing_part_is_found() {
        assert_found(check, &complete(), &[]);
        let place = format!("{LIST}:1");
        for without in 7..complete().len() {
            let mut files = complete();
            let (path, _) = files.remove(without);
            let part = path.trim_end_matches("login.rs");
            // TCP and HTTP share the web servers.
            let count = if part.ends_with("web.rs") { 2 } else { 1 };
            assert_found(check, &files, &vec![(&*place, part); count]);
        }
    }

    #[test]
    fn each_part_missing_in_its_list_is_found() {
        for unlisted in 1..7 {
            let mut files = complete();
            let (path, text) = files[unlisted];
            let text = text.replace("mysql", "other");
            files[unlisted] = (path, &text);
            let place = format!("{path}:1");
            assert_found(check, &files, &[(&place, "of protocol `mysql`")]);
        }
    }

    #[test]
    fn a_protocol_without_exceptions_needs_every_part() {
        let with_resp = ENUMS.replace("    Tcp,\n", "    Tcp,\n    Resp,\n");
        let mut files = complete();
        files[0] = (LIST, &with_resp);
        let place = format!("{LIST}:1");
        let parts = PARTS.map(|part| format!("`resp` has no {}", part.name));
        let lists = PARTS.map(|part| part.listed_in.map_or(LIST, |(file, _)| file));
        let lists = lists.map(|file| format!("{file}:1"));
        let expected: Vec<_> = parts
            .iter()
            .map(|what| (place.as_str(), what.as_str()))
            .chain(
                lists
                    .iter()
                    .map(|file| (file.as_str(), "of protocol `resp`")),
            )
            .collect();
        assert_found(check, &files, &expected);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_found() {
        let place = format!("{LIST}:1");
        let mut files = complete();
        files.push(("crates/wire/src/tcp.rs", ""));
        assert_found(
            check,
            &files,
            &[(&place, "remove the exception for the codec")],
        );
    }
}
