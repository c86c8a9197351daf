//! Reads the file of users: `[users.NAME]`, with what each logs in with.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use super::keys;
use super::names;
use super::plan::{AuthSource, Credential, Secret, UserPlan};
use super::problem::Problems;
use super::reader::Table;
use super::{file, secrets};

/// What a login may be checked against; one of them at most.
const CREDENTIALS: [&str; 3] = ["password", "verifier", "md5"];

/// The users by name, and what is wrong with the file.
pub(super) fn read(
    path: &Path,
    text: &str,
    source: AuthSource,
) -> (BTreeMap<String, UserPlan>, Problems) {
    let mut problems = Problems::new(Some(path), &secrets::masked(text));
    let (root, errors) = DeTable::parse_recoverable(text);
    file::syntax_errors(&errors, &mut problems);
    let mut users = BTreeMap::new();
    if !errors.is_empty() {
        return (users, problems);
    }
    let root = Table::open(&keys::USERS, root.get_ref(), 0..0, &mut problems);
    let help = "begin each user with a line `[users.NAME]`";
    for entry in root.entries("users", help, &mut problems) {
        names::check(&entry, &mut problems);
        if let Some(table) = entry.table(&keys::USER, &mut problems) {
            let user = read_user(&table, &mut problems);
            check_user(&user, &table, source, &mut problems);
            users.insert(entry.name.to_owned(), user);
        }
    }
    if users.is_empty() && !problems.has_errors() {
        problems.error(&None, "E_FILE", "there are no users in this file", help);
    }
    problems.sort();
    (users, problems)
}

fn read_user(table: &Table<'_>, problems: &mut Problems) -> UserPlan {
    let secret = |key, problems: &mut Problems| {
        let text = table.text(key, problems)?;
        Some(Secret::new(text.to_owned()))
    };
    let password = secret("password", problems).map(Credential::Password);
    let verifier = secret("verifier", problems).map(Credential::Scram);
    let md5 = secret("md5", problems).map(Credential::Md5);
    UserPlan {
        credential: password.or(verifier).or(md5),
        certificate: table.flag("certificate", problems).unwrap_or(false),
        server_user: table.text("server_user", problems).map(str::to_owned),
        server_password: secret("server_password", problems),
    }
}

fn check_user(user: &UserPlan, table: &Table<'_>, source: AuthSource, problems: &mut Problems) {
    let mut given = CREDENTIALS
        .into_iter()
        .filter(|key| table.value(key).is_some());
    let (first, second) = (given.next(), given.next());
    if let Some((first, second)) = first.zip(second) {
        let message = format!("`{first}` and `{second}` are both given");
        let problem = problems.error(&table.key_place(second), "E_BOTH", message, "keep one");
        problem.with_other(&table.key_place(first), &format!("`{first}` is given"));
        return;
    }
    check_form(user, table, problems);
    if first.is_none() && !table.has_unknown {
        check_login(user, table, source, problems);
    }
    check_server_login(user, table, problems);
}

/// Whether a verifier is one; it is never shown.
fn check_form(user: &UserPlan, table: &Table<'_>, problems: &mut Problems) {
    let (key, form) = match &user.credential {
        Some(Credential::Scram(text)) if !is_scram(text.expose()) => (
            "verifier",
            "SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey",
        ),
        Some(Credential::Md5(text)) if !is_md5(text.expose()) => {
            ("md5", "md5, then 32 digits of 0-9 a-f")
        }
        _ => return,
    };
    let message = format!("`{key}` is not a verifier of this kind");
    let help = format!("it is `{form}`, as pg_authid.rolpassword has it");
    problems.error(&table.value_place(key), "E_VALUE", message, help);
}

/// A user of the file must be able to log in somehow.
fn check_login(user: &UserPlan, table: &Table<'_>, source: AuthSource, problems: &mut Problems) {
    let says_nothing = *user == UserPlan::default();
    let nowhere_else = source == AuthSource::File && !user.certificate;
    if says_nothing || nowhere_else {
        let message = "this user has nothing to log in with";
        let help = "add `password`, `verifier` or `md5`, or `certificate = true`";
        problems.error(&table.place, "E_MISSING_KEY", message, help);
    }
}

/// A certificate stays with the client: something else must log in to the servers. A verifier fits
/// the user that it was made for, and no other.
fn check_server_login(user: &UserPlan, table: &Table<'_>, problems: &mut Problems) {
    let of_this_user = matches!(
        user.credential,
        Some(Credential::Scram(_) | Credential::Md5(_))
    );
    let has_password = matches!(user.credential, Some(Credential::Password(_)));
    if user.server_password.is_some() || has_password {
        return;
    }
    let (key, message) = if user.certificate && !matches!(user.credential, Some(Credential::Md5(_)))
    {
        (
            "certificate",
            "nothing logs in to the servers when this user comes with a certificate",
        )
    } else if user.server_user.is_some() && of_this_user {
        (
            "server_user",
            "what this user logs in with does not log in another user to the servers",
        )
    } else {
        return;
    };
    let help = "add `server_password = \"…\"`, or `password` if it is the same";
    problems.error(&table.key_place(key), "E_MISSING_KEY", message, help);
}

/// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, the last three in base64.
fn is_scram(text: &str) -> bool {
    let parts = text.strip_prefix("SCRAM-SHA-256$").and_then(|rest| {
        let (front, keys) = rest.split_once('$')?;
        let (iterations, salt) = front.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        Some((iterations, salt, stored, server))
    });
    parts.is_some_and(|(iterations, salt, stored, server)| {
        let is_key = |text: &str| is_base64(text) && text.len() == 44 && text.ends_with('=');
        iterations.parse::<u32>().is_ok_and(|number| number > 0)
            && is_base64(salt)
            && is_key(stored)
            && is_key(server)
    })
}

fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !digits.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits.bytes().all(good)
}

fn is_md5(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("md5")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(hex))
}
