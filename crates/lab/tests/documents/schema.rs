//! Validates configurations by the schema for editors, with a validator of others: `jsonschema` of
//! Python, which is a program of its own, so that it changes no feature of the crates under test.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};
use toml::Table;

/// Reads the path of a schema, and a list of lists of files. Prints, for each list, the errors of
/// the file with the fewest.
const VALIDATE: &str = "
import json, sys
from jsonschema import Draft7Validator
schema = json.load(open(sys.argv[1]))
Draft7Validator.check_schema(schema)
validator = Draft7Validator(schema)
errors = lambda file: [f'{e.json_path}: {e.message}'[:300] for e in validator.iter_errors(file)]
json.dump([min(map(errors, files), key=len) for files in json.load(sys.stdin)], sys.stdout)
";

/// Files with one error each, and the place of the error.
pub(crate) const WRONG: [(&str, &str); 12] = [
    ("[engine]\nworkrs = 2", "$.engine"),
    ("[engine]\nworkers = 0", "$.engine.workers"),
    ("[engine]\nio = \"uring\"", "$.engine.io"),
    ("[log]\nconnections = \"yes\"", "$.log.connections"),
    ("[admin]\nlisten = 9000", "$.admin.listen"),
    (
        "[peers]\naddresses = [\"10.0.0.1:5432\"]",
        "$.peers.addresses",
    ),
    ("[[service]]\nlisten = \"*:1\"", "$.service[0]"),
    (
        "[[service]]\nname = \"a\"\nretries = 101",
        "$.service[0].retries",
    ),
    (
        "[[service]]\nname = \"a\"\nprotocol = \"mysql\"\nqueue.length = 1",
        "$.service[0]",
    ),
    (
        "[[service]]\nname = \"a\"\nprotocol = \"http\"\npool.mode = \"session\"",
        "$.service[0].pool",
    ),
    (
        "[[service]]\nname = \"a\"\nsplit.reads = true",
        "$.service[0]",
    ),
    ("[service]\nname = \"a\"", "$.service"),
];

/// Returns the errors of each list of configurations: those of the file with the fewest. `None`:
/// the validator is not installed.
pub(crate) fn errors(files: &[Vec<String>]) -> Option<Vec<Vec<String>>> {
    let json = |text: &String| json!(text.parse::<Table>().expect("it is TOML"));
    let files: Vec<Vec<Json>> = files
        .iter()
        .map(|files| files.iter().map(json).collect())
        .collect();
    let python = |script: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", script]);
        python
    };
    let is_installed = python("import jsonschema").stderr(Stdio::null()).status();
    if !is_installed.is_ok_and(|status| status.success()) {
        println!("skipped: python3-jsonschema is not installed");
        return None;
    }
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evenkeel.schema.json");
    let mut validator = python(VALIDATE)
        .arg(schema)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut stdin = validator.stdin.take().expect("a pipe");
    stdin
        .write_all(json!(files).to_string().as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = validator.wait_with_output().expect("it ends");
    Some(serde_json::from_slice(&output.stdout).expect("it prints JSON"))
}
