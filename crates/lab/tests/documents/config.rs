//! Checks the configurations on the pages with `evenkeel check`.
//!
//! A block with `[[service]]` is a whole file. Any other block is a part of one, and is checked
//! together with the required keys that it lacks, in a service of any protocol. Three words in the
//! opening line change that: `part` makes a block with `[[service]]` a part; `keys` is a part whose
//! values are placeholders, so that only the names of its keys are checked; `other` is a file of
//! another program, which is not checked.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use evenkeel_lab::balancer::find_binary;
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::certificates::{Certificates, write_private};
use crate::page::Block;

/// The tables of a file, as opposed to the keys of a service.
const TOP_LEVEL: [&str; 6] = ["acme", "engine", "admin", "log", "peers", "service"];

const PROTOCOLS: [&str; 4] = ["postgres", "mysql", "tcp", "http"];

const USERS: &str = "[users.app]\npassword = \"secret\"\n";

/// A problem that `evenkeel check` reports.
struct Problem {
    line: usize,
    code: String,
    message: String,
}

/// Returns the problems of a block of TOML, each with its place.
pub(crate) fn problems(block: &Block, certificates: &Certificates) -> Vec<String> {
    if block.has_word("other") {
        return Vec::new();
    }
    let text = block.text();
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{}: {error}", block.location)],
    };
    let only_keys = block.has_word("keys");
    let is_of_users = table.contains_key("users");
    let is_whole = table.get("service").is_some_and(Value::is_array);
    if is_whole && !only_keys && !block.has_word("part") {
        let found = check(&text, USERS, certificates).into_iter();
        let lines = found.map(|Problem { line, message, .. }| {
            let location = block.location.below(line.saturating_sub(1));
            format!("{location}: {message}")
        });
        return lines.collect();
    }
    let (part, users) = if is_of_users {
        (with_users_file(), text.as_str())
    } else {
        (table, USERS)
    };
    let found = PROTOCOLS.map(|protocol| {
        let config = completed(part.clone(), protocol);
        let mut found = check(&config, users, certificates);
        found.retain(|problem| !only_keys || problem.code == "E_UNKNOWN_KEY");
        found
    });
    let fewest = found.into_iter().min_by_key(Vec::len).unwrap_or_default();
    let lines = fewest.into_iter();
    lines
        .map(|problem| format!("{}: {}", block.location, problem.message))
        .collect()
}

/// Returns the config files that a block of TOML may stand for: with any protocol, if it is a part.
/// Those of other programs, and of users, stand for none.
pub(crate) fn files(block: &Block) -> Vec<String> {
    let text = block.text();
    let table: Table = text.parse().unwrap_or_default();
    if block.has_word("other") || table.contains_key("users") {
        return vec![String::new()];
    }
    let is_whole = table.get("service").is_some_and(Value::is_array);
    match is_whole && !block.has_word("part") {
        true => vec![text],
        false => PROTOCOLS.map(|one| completed(table.clone(), one)).into(),
    }
}

/// Runs `evenkeel check` on the file, beside the files that it names.
fn check(config: &str, users: &str, certificates: &Certificates) -> Vec<Problem> {
    let work_dir = tempfile::tempdir().expect("a directory");
    let mut config = config.to_owned();
    let table: Table = config.parse().expect("it has been parsed");
    for (key, path) in named_files(&Value::Table(table)) {
        let name = Path::new(&path).file_name().expect("it names a file");
        let own = work_dir.path().join(name);
        config = config.replace(&format!("\"{path}\""), &format!("{:?}", own.display()));
        write_named(&key, &own, users, certificates);
    }
    let file = work_dir.path().join("evenkeel.toml");
    fs::write(&file, config).expect("a file can be written");
    let mut command = Command::new(find_binary().expect("a binary"));
    let output = command.args(["check", "--json", "-c"]).arg(&file).output();
    let output = output.expect("evenkeel runs");
    let list: Json = serde_json::from_slice(&output.stdout).expect("check prints JSON");
    let list = list.as_array().expect("check prints a list").iter();
    let errors = list.filter(|problem| problem["severity"] == "error");
    let text = |problem: &Json, key: &str| problem[key].as_str().unwrap_or_default().to_owned();
    errors
        .map(|problem| Problem {
            line: problem["line"].as_u64().unwrap_or(1) as usize,
            code: text(problem, "code"),
            message: format!("{}; {}", text(problem, "message"), text(problem, "help")),
        })
        .collect()
}

/// Returns the keys whose values name files that must exist, with these names.
fn named_files(value: &Value) -> Vec<(String, String)> {
    let names_file = |key: &str| {
        let names = ["certificate", "key", "ca", "client_ca", "directory", "file"];
        key.ends_with("_file") || names.contains(&key)
    };
    match value {
        Value::Table(table) => table
            .iter()
            .flat_map(|(key, value)| match value {
                // The directory of an ACME authority is a URL.
                Value::String(url) if url.starts_with("https://") => Vec::new(),
                Value::String(path) if names_file(key) => vec![(key.clone(), path.clone())],
                value => named_files(value),
            })
            .collect(),
        Value::Array(values) => values.iter().flat_map(named_files).collect(),
        _ => Vec::new(),
    }
}

/// Users of a route, by the test vectors of crypt_blowfish.
const WEB_USERS: &str = "ann:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

/// Writes the file that the value of `key` names.
fn write_named(key: &str, path: &Path, users: &str, certificates: &Certificates) {
    if key == "directory" {
        fs::create_dir_all(path).expect("a directory can be made");
        return;
    }
    let copy = |name: &str| fs::read_to_string(certificates.at(name)).expect("a certificate");
    let text = match key {
        // The users of a route, as `htpasswd -B` writes them.
        "users_file" if path.extension().is_some_and(|end| end == "users") => WEB_USERS.to_owned(),
        "users_file" => users.to_owned(),
        "certificate" => copy("server.crt"),
        "key" => copy("server.key"),
        "ca" | "client_ca" => copy("ca.crt"),
        _ => "secret\n".to_owned(),
    };
    write_private(path, &text);
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
}

/// A service whose users are in a file; those with a certificate need `client_ca`.
fn with_users_file() -> Table {
    let text = "[service.auth]\nusers_file = \"users.toml\"\n\
                [service.tls]\ncertificate = \"server.crt\"\nkey = \"server.key\"\n\
                client_ca = \"ca.crt\"\n";
    text.parse().expect("it is TOML")
}

/// Returns a part as a whole file, with the required keys that it lacks.
fn completed(part: Table, protocol: &str) -> String {
    let (mut file, mut loose): (Table, Table) = part
        .into_iter()
        .partition(|(key, _)| TOP_LEVEL.contains(&key.as_str()));
    let services = match file.remove("service") {
        Some(Value::Array(services)) => services,
        Some(Value::Table(service)) => {
            loose.extend(service);
            vec![Value::Table(loose)]
        }
        _ => vec![Value::Table(loose)],
    };
    let services = services.into_iter().enumerate();
    let services = services.map(|(index, service)| {
        let number = index + 1;
        let required = format!(
            "name = \"service-{number}\"\nprotocol = {protocol:?}\n\
             listen = \"127.0.0.1:{number}\"\nservers = [\"10.0.0.1:{number}\"]\n\
             monitor = {{ user = \"evenkeel\" }}\n"
        );
        let mut table: Table = required.parse().expect("it is TOML");
        table.extend(service.as_table().cloned().unwrap_or_default());
        Value::Table(table)
    });
    file.insert("service".to_owned(), Value::Array(services.collect()));
    toml::to_string(&file).expect("it can be written")
}
