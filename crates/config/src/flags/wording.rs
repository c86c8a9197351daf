//! Rewords problems found by the checks of config files: they name flags instead of keys.

use crate::problem::Problem;

/// Flags of keys in the tables `[service.server_tls]` and `[service.tls]`.
const FLAGS_OF_KEYS: [(&str, &str); 5] = [
    ("mode", "--server-tls"),
    ("ca", "--server-ca"),
    ("fingerprints", "--server-fingerprint"),
    ("certificate", "--tls-certificate"),
    ("key", "--tls-key"),
];

/// Phrases about a file, and what replaces them.
const PHRASES: [(&str, &str); 8] = [
    ("a value of `mode`", "a value of it"),
    (
        "write `fingerprints = [\"sha256:…\"]`",
        "write `--server-fingerprint sha256:…`",
    ),
    (
        "relative paths begin at the config file's directory",
        "relative paths begin at the current one",
    ),
    ("is listed twice in this service", "is listed twice"),
    (
        "list it once; `weight = 2` gives it twice the share",
        "list it once",
    ),
    ("service `main` itself listens on", "`--listen` itself has"),
    (
        "service `main` listens on the same address",
        "another `--listen` has the same address",
    ),
    (
        "set `listen = \"off\"` or another port in [admin]",
        "set `--admin off` or another port with `--admin`",
    ),
];

/// Rewords a problem of the plan that the flags result in.
pub(super) fn of_plan(problem: &mut Problem) {
    let flag = match problem.code {
        "E_DUPLICATE_SERVER" | "E_LOOP" => Some("--to"),
        "E_DUPLICATE_LISTEN" => Some("--listen"),
        _ => None,
    };
    reword(problem, flag);
}

/// Rewords a problem of the file that [`read_tls`](super::read_tls) writes from the flags of TLS.
pub(super) fn of_tls(problem: &mut Problem, file: &str) {
    let line = problem.span.as_ref().and_then(|span| {
        let begin = file.get(..span.start)?.rfind('\n').map_or(0, |at| at + 1);
        file.get(begin..)?.lines().next()
    });
    let key = line.and_then(|line| line.split_once(" = "));
    let found = key.and_then(|(key, _)| FLAGS_OF_KEYS.iter().find(|(known, _)| *known == key));
    reword(problem, found.map(|(_, flag)| *flag));
}

fn reword(problem: &mut Problem, flag: Option<&str>) {
    for text in [&mut problem.message, &mut problem.help] {
        for (phrase, replacement) in PHRASES {
            *text = text.replace(phrase, replacement);
        }
    }
    if let Some(flag) = flag
        && !problem.message.starts_with("--")
    {
        problem.message = format!("{flag}: {}", problem.message);
    }
}
