//! Reads `basic_auth` of a route: its users, with hashes of their passwords.

use std::collections::BTreeMap;
use std::str::FromStr;

use bcrypt::HashParts;

use crate::keys;
use crate::plan::{BasicAuthPlan, Secret};
use crate::problem::{Problems, SourceSpan};
use crate::reader::{Table, wrong_type};
use crate::sources::Sources;

/// Maximum cost of a hash. Each further one doubles the time of a verification: a second at this
/// one.
const COST_MAX: u32 = 14;

const HASH_HELP: &str = "make one with `htpasswd -nbB NAME PASSWORD`: it begins with `$2y$`";

/// Reads the table. `None`: the route has none.
pub(super) fn read(
    route: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<BasicAuthPlan> {
    let table = route.table("basic_auth", &keys::BASIC_AUTH, problems)?;
    let mut users = BTreeMap::new();
    let help = format!("write `users = {{ NAME = \"HASH\" }}`; {HASH_HELP}");
    for entry in table.entries("users", &help, problems) {
        let span = Some(entry.value.span());
        match entry.value.get_ref().as_str() {
            Some(hash) => add(&mut users, (entry.name, hash), (&span, None), problems),
            None => wrong_type(entry.name, "a string", entry.value, help.as_str(), problems),
        }
    }
    if !users.is_empty() && sources.world_readable {
        let message = "`users` is in a file that is readable by everyone on this machine";
        let help = "`chmod o-r` the file, or use `users_file`";
        problems.warning(&table.key_span("users"), "W_SECRET_READABLE", message, help);
    }
    read_file(&table, sources, &mut users, problems);
    if users.is_empty() && !table.has_unknown && !problems.has_errors() {
        let message = "`basic_auth` has no users";
        problems.error(&table.span, "E_MISSING_KEY", message, help);
    }
    Some(BasicAuthPlan {
        cost_max: read_cost_max(&table, &users, problems),
        realm: read_realm(&table, problems),
        users,
    })
}

/// Returns the highest cost. Reports hashes of several costs: a name that no user has is verified
/// at the highest one, so a quicker refusal shows that a user exists.
fn read_cost_max(
    table: &Table<'_>,
    users: &BTreeMap<String, Secret>,
    problems: &mut Problems,
) -> u32 {
    let costs = users.values().filter_map(|hash| cost_of(hash.expose()));
    let min = costs.clone().min().unwrap_or_default();
    let max = costs.max().unwrap_or_default();
    if min != max && !problems.has_errors() {
        let message = format!("the hashes have costs from {min} to {max}");
        let help = format!(
            "the time of a refusal shows which names exist: make all with cost {max}, as \
             `htpasswd -nbB -C {max} NAME PASSWORD` does"
        );
        problems.warning(&table.span, "W_PASSWORD_COST", message, help);
    }
    max
}

fn read_realm(table: &Table<'_>, problems: &mut Problems) -> String {
    let realm = table.text("realm", problems).unwrap_or("restricted");
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && !matches!(byte, b'"' | b'\\');
    if !realm.bytes().all(is_plain) {
        let message = format!("`{realm}` cannot be a realm");
        let help = "printable ASCII characters other than `\"` and `\\`";
        problems.error(&table.value_span("realm"), "E_VALUE", message, help);
    }
    realm.to_owned()
}

/// Reads the lines `NAME:HASH` of `users_file`.
fn read_file(
    table: &Table<'_>,
    sources: &Sources,
    users: &mut BTreeMap<String, Secret>,
    problems: &mut Problems,
) {
    let Some(name) = table.text("users_file", problems) else {
        return;
    };
    let (path, span) = (sources.path(name), table.value_span("users_file"));
    let Some(text) = sources.secret_text(&path, &span, problems) else {
        return;
    };
    for (index, line) in text.expose().lines().enumerate() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = Some(format!("line {} of {}", index + 1, path.display()));
        let user = line.split_once(':').unwrap_or((line, ""));
        add(users, user, (&span, place), problems);
    }
    if users.is_empty() && !problems.has_errors() {
        let message = format!("{} has no users", path.display());
        problems.error(&span, "E_FILE", message, HASH_HELP);
    }
}

/// Adds a user, or reports the fault of its name or hash, which no message shows.
fn add(
    users: &mut BTreeMap<String, Secret>,
    (name, hash): (&str, &str),
    (span, place): (&SourceSpan, Option<String>),
    problems: &mut Problems,
) {
    let of = place.map(|place| format!(" ({place})")).unwrap_or_default();
    let is_valid = |c: char| c != ':' && !c.is_control();
    if name.is_empty() || name.len() > 255 || !name.chars().all(is_valid) {
        let message = format!("the name of a user is invalid{of}");
        let help = "1 to 255 bytes, without colons and control characters";
        problems.error(span, "E_NAME", message, help);
        return;
    }
    match cost_of(hash) {
        Some(4..=COST_MAX) => {}
        Some(cost) => {
            let message = format!("the hash of `{name}` has cost {cost}{of}");
            let help = format!("4 to {COST_MAX}: each further one doubles the time of a login");
            problems.error(span, "E_VALUE", message, help);
        }
        None => {
            let message = format!("the password of `{name}` is {}{of}", kind_of(hash));
            problems.error(span, "E_VALUE", message, HASH_HELP);
        }
    }
    let hash = Secret::new(hash.to_owned());
    if users.insert(name.to_owned(), hash).is_some() {
        let message = format!("the user `{name}` is listed twice{of}");
        problems.error(span, "E_BOTH", message, "remove one of them");
    }
}

/// Returns the cost of a bcrypt hash: it takes 2^cost steps. `None`: the text is none.
fn cost_of(hash: &str) -> Option<u32> {
    let is_known = ["$2a$", "$2b$", "$2y$"]
        .iter()
        .any(|start| hash.starts_with(start));
    let parts = HashParts::from_str(hash).ok().filter(|_| is_known)?;
    Some(parts.get_cost())
}

/// Names what is in the place of a bcrypt hash.
fn kind_of(hash: &str) -> &'static str {
    let is_crypt = |prefix: &str| hash.starts_with(prefix);
    if is_crypt("$apr1$") || is_crypt("$1$") {
        "an MD5 hash, which is guessed quickly"
    } else if is_crypt("{SHA}") || is_crypt("{SSHA}") {
        "a SHA-1 hash, which is guessed quickly"
    } else {
        "not a bcrypt hash"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash of "U*U" with cost 5, of the test vectors of crypt_blowfish.
    const HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    #[test]
    fn other_hashes_have_no_cost() {
        assert_eq!(cost_of(HASH), Some(5));
        for text in [
            "",
            "$apr1$x$y",
            "{SHA}x",
            &HASH[..59],
            &HASH.replace("$2a", "$2x"),
            &HASH.replace('E', "*"),
        ] {
            assert_eq!(cost_of(text), None, "{text}");
        }
    }
}
