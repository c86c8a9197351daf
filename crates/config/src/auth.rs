//! Reads `[service.auth]`: permitted users, their addresses, and the source of credentials.

use crate::names;
use crate::nearest::nearest;
use crate::networks::networks;
use crate::plan::{AccountPlan, AuthPlan, AuthSource, Monitor, SqlProtocol};
use crate::problem::Problems;
use crate::protocol;
use crate::reader::{Entry, Table};
use crate::sources::Sources;
use crate::users;

/// Keys of the account that queries the servers.
const SERVER_KEYS: [&str; 5] = ["user", "password", "password_file", "database", "query"];

/// Advice for keys that are valid only for PostgreSQL.
const NOT_FOR_MYSQL: [(&str, &str); 1] = [(
    "query",
    "remove it: the account of the user is read from `mysql.user`; docs/logins.md has the grant",
)];

/// Key for users that `allow_from` does not list.
const OTHERS: &str = "*";

/// Returns the settings without the table.
pub(crate) fn from_monitor(monitor: Option<&Monitor>) -> AuthPlan {
    let account = monitor.map(|monitor| AccountPlan {
        user: monitor.user.clone(),
        password: monitor.password.clone(),
        database: monitor.database.clone(),
    });
    AuthPlan {
        account,
        ..AuthPlan::default()
    }
}

/// Reads the table.
pub(crate) fn read(
    (protocol, table): (SqlProtocol, &Table<'_>),
    monitor: Option<&Monitor>,
    sources: &Sources,
    problems: &mut Problems,
) -> AuthPlan {
    let mut auth = from_monitor(monitor);
    match table.word("source", problems) {
        Some("file") => {
            auth.source = AuthSource::File;
            auth.account = None;
            check_server_keys("file", table, problems);
            require_users_file(table, problems);
        }
        Some("login") => {
            auth.source = AuthSource::Login;
            auth.account = None;
            check_server_keys("login", table, problems);
        }
        _ => {
            auth.query = read_query(protocol, table, problems);
            read_account(&mut auth, table, sources, problems);
        }
    }
    read_users(&mut auth, (protocol, table), sources, problems);
    read_allowed(&mut auth, (protocol, table), problems);
    auth
}

/// Reports keys for queries on servers, which only `source = "server"` makes.
fn check_server_keys(source: &str, table: &Table<'_>, problems: &mut Problems) {
    let given = SERVER_KEYS.into_iter();
    for key in given.filter(|key| table.value(key).is_some()) {
        let message = format!("`{key}` is for `source = \"server\"`, not for `{source}`");
        let help = format!("set `source = \"server\"`, or remove `{key}`");
        problems.error(&table.key_span(key), "E_SOURCE_KEY", message, help);
    }
}

fn require_users_file(table: &Table<'_>, problems: &mut Problems) {
    if table.value("users_file").is_none() {
        let message = "`source = \"file\"` needs a `users_file`";
        let help = "add `users_file = \"users.toml\"`";
        problems.error(&table.value_span("source"), "E_MISSING_KEY", message, help);
    }
}

fn read_account(
    auth: &mut AuthPlan,
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) {
    let password = sources.secret(table, "password", "password_file", problems);
    let database = table.text("database", problems).map(str::to_owned);
    if let Some(user) = table.text("user", problems) {
        auth.account = Some(AccountPlan {
            user: user.to_owned(),
            password: password.unwrap_or_default(),
            database,
        });
        return;
    }
    let orphan = ["password", "password_file"].into_iter();
    for key in orphan.filter(|key| table.value(key).is_some() && table.value("user").is_none()) {
        let message = format!("`{key}` without `user`");
        let help = "add `user = \"…\"`; without both, the monitor account is used";
        problems.error(&table.key_span(key), "E_MISSING_KEY", message, help);
    }
    if let (Some(account), Some(database)) = (&mut auth.account, database) {
        account.database = Some(database);
    }
}

fn read_query(protocol: SqlProtocol, table: &Table<'_>, problems: &mut Problems) -> Option<String> {
    match protocol {
        SqlProtocol::Postgres => read_postgres_query(table, problems),
        SqlProtocol::Mysql => {
            protocol::refuse(protocol.name(), &NOT_FOR_MYSQL, table, problems);
            None
        }
    }
}

fn read_postgres_query(table: &Table<'_>, problems: &mut Problems) -> Option<String> {
    let query = table.text("query", problems)?;
    if !query.contains("$1") {
        let message = "`query` has no `$1`, so it does not select one user";
        let help = "write `query = \"SELECT rolname, rolpassword, valid_until FROM \
                    evenkeel_login($1)\"`; docs/logins.md has the function";
        problems.error(&table.value_span("query"), "E_VALUE", message, help);
    }
    Some(query.to_owned())
}

fn read_users(
    auth: &mut AuthPlan,
    (protocol, table): (SqlProtocol, &Table<'_>),
    sources: &Sources,
    problems: &mut Problems,
) {
    let Some(name) = table.text("users_file", problems) else {
        return;
    };
    let (path, span) = (sources.path(name), table.value_span("users_file"));
    if let Some(text) = sources.secret_text(&path, &span, problems) {
        let (found, wrong) = users::read(protocol, (&path, text.expose()), auth.source);
        auth.users = found;
        problems.of_other_file(&span, &wrong);
    }
    auth.users_file = Some(path);
}

fn read_allowed(
    auth: &mut AuthPlan,
    (protocol, table): (SqlProtocol, &Table<'_>),
    problems: &mut Problems,
) {
    let help = "write `allow_from = { app = [\"10.0.0.0/8\"], \"*\" = [\"127.0.0.1\"] }`";
    for entry in table.entries("allow_from", help, problems) {
        names::check(protocol, &entry, problems);
        let networks = networks("allow_from", entry.value, problems);
        if entry.name == OTHERS {
            auth.allow_others_from = Some(networks);
            continue;
        }
        check_known(auth, &entry, problems);
        auth.allow_from.insert(entry.name.to_owned(), networks);
    }
}

/// Reports a user of `allow_from` who is not in the users file: for a misspelled name the
/// restriction would not apply.
fn check_known(auth: &AuthPlan, entry: &Entry<'_>, problems: &mut Problems) {
    let unread = auth.users.is_empty();
    if auth.source != AuthSource::File || unread || auth.users.contains_key(entry.name) {
        return;
    }
    let message = format!("`{}` is not in the users file", entry.name);
    let near = nearest(entry.name, auth.users.keys().map(String::as_str));
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => "add the user there, or remove the entry".to_owned(),
    };
    problems.warning(&Some(entry.span.clone()), "W_NO_EFFECT", message, help);
}
