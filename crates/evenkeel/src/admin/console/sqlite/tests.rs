//! Tests SELECT over a table of three rows, and statements that must be rejected or stopped.

use super::*;
use crate::admin::console::command;

fn query(text: &str, dialect: Dialect) -> Result<Query, ConsoleError> {
    let statement = command::ConsoleCommand::parse(text, dialect)?;
    let command::ConsoleCommand::Query(mut query) = statement else {
        panic!("{text}: {statement:?}");
    };
    query.plan = plan(&query)?;
    Ok(query)
}

fn lists() -> Vec<Row> {
    let row = |name: &str, value: &str| vec![Some(name.to_owned()), Some(value.to_owned())];
    vec![
        row("databases", "9"),
        row("users", "10"),
        row("pools", "11"),
    ]
}

/// Returns the columns and rows of a statement over `lists`.
fn asked(text: &str) -> Result<(Vec<String>, Vec<Vec<String>>), ConsoleError> {
    let query = query(text, Dialect::Mysql)?;
    let rows = run(&query, &[Value::Integer(1)], &[(Show::Lists, lists())])?;
    let plain = |row: Row| {
        let values = row.into_iter().map(|value| value.unwrap_or("NULL".into()));
        values.collect()
    };
    Ok((query.plan.columns, rows.into_iter().map(plain).collect()))
}

fn rows(text: &str) -> Vec<Vec<String>> {
    asked(text)
        .unwrap_or_else(|error| panic!("{text}: {error:?}"))
        .1
}

#[test]
fn rows_are_picked_joined_grouped_and_put_in_order() {
    assert_eq!(rows("SHOW LISTS LIKE '%s%' LIMIT 1"), [["databases", "9"]]);
    assert_eq!(rows("SHOW LISTS WHERE list = users"), [["users", "10"]]);
    assert_eq!(rows("SHOW LISTS WHERE list LIKE 'U\\_%'").len(), 0);
    assert_eq!(
        rows("SHOW LISTS ORDER BY items DESC LIMIT 2"),
        [["pools", "11"], ["users", "10"]]
    );
    let text = "SELECT items AS n FROM `evenkeel`.`lists` ORDER BY items DESC LIMIT 2";
    assert_eq!(rows(text), [["11"], ["10"]]);
    let text = "SELECT * FROM evenkeel.lists WHERE items = '10' OR list = \"pools\"";
    assert_eq!(rows(text), [["users", "10"], ["pools", "11"]]);
    assert!(rows("SELECT list FROM lists WHERE list = 'nobody'").is_empty());
    let text = "WITH big AS (SELECT * FROM lists WHERE items > 9) \
                SELECT a.list, count(*), sum(b.items) FROM big a JOIN lists b ON b.items < a.items \
                GROUP BY 1 ORDER BY 3 DESC";
    assert_eq!(rows(text), [["pools", "2", "19"], ["users", "1", "9"]]);
    let text = "WITH big AS (SELECT 1 FROM lists) SELECT count(*) FROM big";
    assert_eq!(rows(text), [["3"]]);
    assert_eq!(
        rows("SELECT avg(items), x'00ff', NULL FROM lists"),
        [["10.0", "00ff", "NULL"]]
    );
    assert_eq!(rows("VALUES (1, 'a'), (2, 'b')"), [["1", "a"], ["2", "b"]]);
}

#[test]
fn columns_have_the_names_that_were_asked_for() {
    let (columns, rows) = asked(
        "select connection_id(), 'x', 7, 1+connection_id() as n, list \
                                 from lists limit 1",
    )
    .unwrap();
    assert_eq!(columns, ["connection_id()", "x", "7", "n", "list"]);
    // Each occurrence is a parameter, and one value was given.
    assert_eq!(rows, [["1", "x", "7", "NULL", "databases"]]);
}

#[test]
fn only_the_tables_that_are_read_are_filled() {
    for (text, reads) in [
        ("SELECT 1", &[][..]),
        ("SELECT count(*) FROM POOLS", &[Show::Pools]),
        (
            "SELECT user FROM clients WHERE id IN (SELECT client_id FROM servers)",
            &[Show::Clients, Show::Servers],
        ),
    ] {
        let plan = query(text, Dialect::Postgres).unwrap().plan;
        assert_eq!(plan.reads.len(), reads.len(), "{text}: {:?}", plan.reads);
        assert!(reads.iter().all(|show| plan.reads.contains(show)), "{text}");
    }
}

#[test]
fn what_is_no_select_over_these_tables_is_refused() {
    for (text, why) in [
        ("ATTACH '/tmp/x' AS x", ConsoleErrorKind::Syntax),
        ("PRAGMA table_list", ConsoleErrorKind::Syntax),
        ("DELETE FROM pools", ConsoleErrorKind::Syntax),
        ("EXPLAIN SELECT 1", ConsoleErrorKind::Syntax),
        (
            "WITH a AS (SELECT 1) DELETE FROM pools",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "WITH a AS (SELECT 1) INSERT INTO lists VALUES (1, 2)",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "WITH a AS (SELECT 1) UPDATE lists SET items = 0",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "SELECT load_extension('/tmp/x')",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "SELECT fts3_tokenizer('simple')",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "SELECT * FROM pragma_table_list",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "SELECT count(*) FROM pragma_database_list",
            ConsoleErrorKind::Unsupported,
        ),
        ("SELECT * FROM sqlite_schema", ConsoleErrorKind::Unsupported),
        (
            "SELECT count(*) FROM sqlite_schema",
            ConsoleErrorKind::Unsupported,
        ),
        (
            "SELECT * FROM evenkeel.sqlite_schema",
            ConsoleErrorKind::Unsupported,
        ),
        ("SELECT * FROM dbstat", ConsoleErrorKind::Unsupported),
        ("SELECT 1; SELECT 2", ConsoleErrorKind::Syntax),
        ("SELECT 1 --'\n; SELECT 2 --'", ConsoleErrorKind::Syntax),
        ("SELECT $1", ConsoleErrorKind::Unsupported),
        (
            "SELECT * FROM pools WHERE user = ?",
            ConsoleErrorKind::Unsupported,
        ),
        ("SELECT * FROM other.pools", ConsoleErrorKind::UnknownTable),
        ("SELECT", ConsoleErrorKind::Syntax),
        ("SELECT nobody", ConsoleErrorKind::UnknownColumn),
        ("SELECT nobody()", ConsoleErrorKind::Syntax),
    ] {
        for dialect in [Dialect::Postgres, Dialect::Mysql] {
            let error = query(text, dialect).expect_err(text);
            assert_eq!(error.kind, why, "{text}: {}", error.message);
        }
    }
}

#[test]
fn errors_name_the_place_and_what_there_is() {
    for (text, parts) in [
        (
            "SELECT * FROM nobody",
            &["no such table: nobody", "clients, config", "users"][..],
        ),
        (
            "SELECT nobody FROM lists",
            &[
                "no such column: nobody",
                "at \"nobody FROM lists\"",
                "lists has list, items",
            ],
        ),
        (
            "SELECT list FORM lists",
            &["near \"lists\": syntax error", "at \"lists\""],
        ),
        ("SELECT version() FROM", &["incomplete input"]),
    ] {
        let error = query(text, Dialect::Postgres).expect_err(text).message;
        for part in parts {
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn what_has_no_end_is_ended() {
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    let sum = "1+".repeat(200);
    let views: String = (1..14)
        .map(|at| format!(", v{at} AS (SELECT * FROM v{0}, v{0} AS o)", at - 1))
        .collect();
    for (text, why) in [
        (
            format!("{numbers} SELECT count(*) FROM n"),
            ConsoleErrorKind::QueryTimedOut,
        ),
        (
            format!("{numbers} SELECT i FROM n LIMIT 10001"),
            ConsoleErrorKind::TooLarge,
        ),
        (
            format!("{numbers} SELECT hex(zeroblob(30000)) FROM n LIMIT 1000"),
            ConsoleErrorKind::TooLarge,
        ),
        (
            "SELECT hex(zeroblob(60000))".into(),
            ConsoleErrorKind::TooLarge,
        ),
        (format!("SELECT {sum}1"), ConsoleErrorKind::TooLarge),
        (
            format!("WITH v0 AS (SELECT 1){views} SELECT count(*) FROM v13"),
            ConsoleErrorKind::TooLarge,
        ),
    ] {
        let begun = Instant::now();
        let error = asked(&text).expect_err(&text);
        let took = begun.elapsed();
        assert_eq!(error.kind, why, "{text}: {}", error.message);
        // A slow machine may need longer, but an endless statement must be stopped.
        assert!(took < TIME_MAX * 10, "{text}: {took:?}");
        assert!(
            why != ConsoleErrorKind::QueryTimedOut || took >= TIME_MAX,
            "{text}: {took:?}"
        );
    }
    let most = format!("{numbers} SELECT i FROM n LIMIT 10000");
    assert_eq!(rows(&most).len(), ROWS_MAX);
}

/// A stack overflow would end the process.
#[test]
fn what_is_nested_or_doubled_without_measure_is_refused_at_once() {
    let around = |open: &str, inside: &str, close: &str, times: usize| {
        format!("{}{inside}{}", open.repeat(times), close.repeat(times))
    };
    let chain = |each: &dyn Fn(usize) -> String| {
        let views: String = (1..600)
            .map(|at| format!(",v{at} AS({})", each(at - 1)))
            .collect();
        format!("WITH v0 AS(SELECT 1 a){views} SELECT*FROM v599")
    };
    for text in [
        around("SELECT*FROM(", "SELECT 1", ")", 1_200),
        around("SELECT(", "SELECT 1", ")", 2_000),
        around("SELECT 1 FROM lists WHERE 1 IN(", "SELECT 1", ")", 500),
        format!("SELECT {}", around("(", "1", ")", 8_000)),
        format!("SELECT {}", around("CASE ", "1", " WHEN 1 THEN 1 END", 600)),
        format!("SELECT {}1", "NOT ".repeat(4_000)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(1_000)),
        format!("SELECT 1 FROM lists{}", ",lists".repeat(2_000)),
        chain(&|at| format!("SELECT*FROM v{at} LIMIT 1")),
        chain(&|at| format!("SELECT DISTINCT*FROM v{at}")),
        chain(&|at| format!("SELECT(SELECT a FROM v{at})a")),
        chain(&|at| format!("SELECT*FROM v{at} UNION ALL SELECT*FROM v{at}")),
    ] {
        let begun = Instant::now();
        let error = asked(&text).expect_err(&text);
        assert_eq!(
            error.kind,
            ConsoleErrorKind::TooLarge,
            "{text}: {}",
            error.message
        );
        assert!(begun.elapsed() < TIME_MAX * 10, "{text}");
    }
}

#[test]
fn show_gives_every_row_that_the_table_has() {
    let row = |at: usize| vec![Some(format!("list {at}")), Some(at.to_string())];
    let all: Vec<Row> = (0..=ROWS_MAX).map(row).collect();
    let asked = |text: &str| {
        let query = query(text, Dialect::Postgres).unwrap();
        run(&query, &[], &[(Show::Lists, all.clone())])
    };
    assert_eq!(asked("SHOW LISTS LIKE 'list%'").unwrap().len(), all.len());
    let error = asked("SELECT * FROM lists").unwrap_err();
    assert_eq!(error.kind, ConsoleErrorKind::TooLarge, "{}", error.message);
}
