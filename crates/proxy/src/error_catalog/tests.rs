//! Compares the catalog with `docs/errors.md`, and tests how messages are built.

use std::collections::BTreeSet;

use super::*;

const PAGE: &str = include_str!("../../../../docs/errors.md");

/// A row of the page: message, and the codes in PostgreSQL and MySQL.
type Row = [String; 3];

fn documented(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
    let [message, postgres, mysql, ..] = cells[..] else {
        return None;
    };
    let message = message.strip_prefix('`')?.strip_suffix('`')?;
    let code = |cell: &str| cell.trim_matches(['`', '-']).to_owned();
    Some([message.to_owned(), code(postgres), code(mysql)])
}

fn row(entry: &CatalogEntry) -> Row {
    let text = |sqlstate: [u8; 5]| String::from_utf8_lossy(&sqlstate).into_owned();
    let mysql = |(number, sqlstate)| format!("{number} ({})", text(sqlstate));
    [
        entry.message.to_owned(),
        entry.postgres.map(text).unwrap_or_default(),
        entry.mysql.map(mysql).unwrap_or_default(),
    ]
}

#[test]
fn every_error_is_documented_and_every_documented_error_exists() {
    let documented: BTreeSet<Row> = PAGE.lines().filter_map(documented).collect();
    let entries: BTreeSet<Row> = ENTRIES.iter().map(|entry| row(entry)).collect();
    let missing: Vec<_> = entries.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&entries).collect();
    assert!(missing.is_empty(), "not in docs/errors.md: {missing:#?}");
    assert!(unknown.is_empty(), "only in docs/errors.md: {unknown:#?}");
    assert_eq!(ENTRIES.len(), entries.len(), "an entry stands twice");
}

#[test]
fn arguments_replace_the_marks_in_order() {
    let id: u32 = 7;
    assert_eq!(
        UNKNOWN_STATEMENT.message(&[&id, &"mysqld_stmt_execute"]),
        "Unknown prepared statement handler (7) given to mysqld_stmt_execute"
    );
    assert_eq!(BAD_HANDSHAKE.message(&[]), "Bad handshake");
    assert_eq!(CONNECT_FAILED.message(&[&"no route"]), "no route");
}

#[test]
fn mysql_messages_end_with_the_hint() {
    assert_eq!(
        TOO_MANY_LOGINS.message_and_hint(&[]),
        "too many concurrent logins, try again. See logins_at_once and logins_per_address of the \
         service"
    );
    assert_eq!(BAD_HANDSHAKE.message_and_hint(&[]), "Bad handshake");
}

/// TO SEE THIS RED: remove the arm for `waited_ms: 0`.
#[test]
fn an_error_without_a_wait_states_no_time() {
    let message = |waited_ms| {
        let (entry, argument) = CatalogEntry::of_primary(PrimaryError::NoPrimary { waited_ms });
        entry.message(&[&argument])
    };
    assert_eq!(
        message(0),
        "no primary available; statement not executed, retry"
    );
    let waited = "no primary available after 250 ms; statement not executed, retry";
    assert_eq!(message(250), waited);
}
