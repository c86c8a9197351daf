//! Reads the users file: `[users.NAME]`, with the credentials of each user.

mod forms;

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeTable;

use crate::keys;
use crate::names;
use crate::plan::{AuthSource, Credential, Secret, SqlProtocol, UserPlan};
use crate::problem::Problems;
use crate::protocol;
use crate::reader::Table;
use crate::secrets;
use crate::syntax::syntax_errors;

/// Keys of credentials, of which a user may have at most one.
const CREDENTIALS: [&str; 3] = ["password", "verifier", "md5"];

/// Advice for keys that are valid only for PostgreSQL.
const NOT_FOR_MYSQL: [(&str, &str); 2] = [
    (
        "md5",
        "use `password`, or `verifier` with the value from `mysql.user`",
    ),
    (
        "cleartext",
        "remove it: the authentication plugin determines how the password is sent",
    ),
];

/// Returns the users by name, and the problems of the file.
pub(crate) fn read(
    protocol: SqlProtocol,
    (path, text): (&Path, &str),
    source: AuthSource,
) -> (BTreeMap<String, UserPlan>, Problems) {
    let mut problems = Problems::new(Some(path), &secrets::masked(text));
    let (root, errors) = DeTable::parse_recoverable(text);
    syntax_errors(&errors, &mut problems);
    let mut users = BTreeMap::new();
    if !errors.is_empty() {
        return (users, problems);
    }
    let root = Table::open(&keys::USERS, root.get_ref(), 0..0, &mut problems);
    let help = "begin each user with a line `[users.NAME]`";
    for entry in root.entries("users", help, &mut problems) {
        names::check(protocol, &entry, &mut problems);
        if let Some(table) = entry.table(&keys::USER, &mut problems) {
            let user = read_user(protocol, &table, &mut problems);
            check_user(&user, &table, (protocol, source), &mut problems);
            users.insert(entry.name.to_owned(), user);
        }
    }
    if users.is_empty() && !problems.has_errors() {
        problems.error(&None, "E_FILE", "this file defines no users", help);
    }
    problems.sort();
    (users, problems)
}

fn read_user(protocol: SqlProtocol, table: &Table<'_>, problems: &mut Problems) -> UserPlan {
    let secret = |key, problems: &mut Problems| {
        let text = table.text(key, problems)?;
        Some(Secret::new(text.to_owned()))
    };
    let password = secret("password", problems).map(Credential::Password);
    let verifier = secret("verifier", problems).map(match protocol {
        SqlProtocol::Mysql => Credential::Mysql,
        SqlProtocol::Postgres => Credential::Scram,
    });
    let md5 = secret("md5", problems).map(Credential::Md5);
    UserPlan {
        credential: password.or(verifier).or(md5),
        certificate: table.flag("certificate", problems).unwrap_or(false),
        cleartext: table.flag("cleartext", problems).unwrap_or(false),
        server_user: table.text("server_user", problems).map(str::to_owned),
        server_password: secret("server_password", problems),
    }
}

fn check_user(
    user: &UserPlan,
    table: &Table<'_>,
    (protocol, source): (SqlProtocol, AuthSource),
    problems: &mut Problems,
) {
    protocol::refuse(protocol.name(), &NOT_FOR_MYSQL, table, problems);
    let mut given = CREDENTIALS
        .into_iter()
        .filter(|key| table.value(key).is_some());
    let (first, second) = (given.next(), given.next());
    if let Some((first, second)) = first.zip(second) {
        let message = format!("both `{first}` and `{second}` are set");
        let problem = problems.error(&table.key_span(second), "E_BOTH", message, "keep one");
        problem.with_other(&table.key_span(first), &format!("`{first}` is set"));
        return;
    }
    check_form(user, table, problems);
    if first.is_none() && !table.has_unknown {
        check_login(user, table, (protocol, source), problems);
    }
    check_server_login(user, table, problems);
}

/// Checks the format of a verifier, which no message shows.
fn check_form(user: &UserPlan, table: &Table<'_>, problems: &mut Problems) {
    let (key, form, from) = match &user.credential {
        Some(Credential::Scram(text)) if !forms::is_scram(text.expose()) => (
            "verifier",
            "`SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`",
            "pg_authid.rolpassword",
        ),
        Some(Credential::Md5(text)) if !forms::is_md5(text.expose()) => (
            "md5",
            "`md5` followed by 32 digits 0-9 a-f",
            "pg_authid.rolpassword",
        ),
        Some(Credential::Mysql(text)) if !forms::is_mysql(text.expose()) => (
            "verifier",
            "`*` and 40 digits 0-9 A-F, or `$A$` and 67 characters (also in hex after `0x`)",
            "mysql.user.authentication_string",
        ),
        _ => return,
    };
    let message = format!("`{key}` is not a valid password hash of this kind");
    let help = format!("expected {form}, as in {from}");
    problems.error(&table.value_span(key), "E_VALUE", message, help);
}

/// Checks that a user of the file has a way to log in.
fn check_login(
    user: &UserPlan,
    table: &Table<'_>,
    (protocol, source): (SqlProtocol, AuthSource),
    problems: &mut Problems,
) {
    let says_nothing = *user == UserPlan::default();
    let nowhere_else = source != AuthSource::Server && !user.certificate;
    if says_nothing || nowhere_else {
        let message = "this user has no credentials";
        let help = match protocol {
            SqlProtocol::Mysql => "add `password` or `verifier`, or `certificate = true`",
            SqlProtocol::Postgres => "add `password`, `verifier` or `md5`, or `certificate = true`",
        };
        problems.error(&table.span, "E_MISSING_KEY", message, help);
    }
}

/// Checks that Evenkeel can log in to servers. A client certificate cannot be used for that, and a
/// verifier fits only the user for whom it was created.
fn check_server_login(user: &UserPlan, table: &Table<'_>, problems: &mut Problems) {
    let of_this_user = matches!(
        user.credential,
        Some(Credential::Scram(_) | Credential::Md5(_) | Credential::Mysql(_))
    );
    let has_password = matches!(user.credential, Some(Credential::Password(_)));
    if user.server_password.is_some() || has_password {
        return;
    }
    let (key, message) = if user.certificate && !matches!(user.credential, Some(Credential::Md5(_)))
    {
        (
            "certificate",
            "a certificate login provides no credential for the servers",
        )
    } else if user.server_user.is_some() && of_this_user {
        (
            "server_user",
            "the credential of this user cannot log in a different `server_user`",
        )
    } else {
        return;
    };
    let help = "add `server_password = \"…\"`, or `password` if it is the same";
    problems.error(&table.key_span(key), "E_MISSING_KEY", message, help);
}
