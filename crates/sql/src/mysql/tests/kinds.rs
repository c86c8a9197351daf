//! Kinds of statements that are not queries, and SET.

use super::*;

#[track_caller]
fn check(text: &str, expect: StatementKind) {
    assert_eq!(one(text).kind, expect, "{text}");
}

/// Returns the position of the last `part` in `text`.
fn at(text: &str, part: &str) -> Span {
    let start = text.rfind(part).unwrap();
    Span {
        start: start as u32,
        end: (start + part.len()) as u32,
    }
}

#[test]
fn transactions() {
    let begin = |read_only, snapshot| StatementKind::Begin {
        read_only,
        snapshot,
    };
    check("BEGIN", begin(None, false));
    check("begin work", begin(None, false));
    check("START TRANSACTION", begin(None, false));
    check("START TRANSACTION READ ONLY", begin(Some(true), false));
    check(
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ WRITE",
        begin(Some(false), true),
    );
    check("START TRANSACTION READ", StatementKind::Unknown);
    check(
        "COMMIT",
        StatementKind::Commit(TransactionCompletion::default()),
    );
    let chain = TransactionCompletion {
        chain: true,
        release: false,
    };
    check(
        "COMMIT WORK AND CHAIN NO RELEASE",
        StatementKind::Commit(chain),
    );
    let release = TransactionCompletion {
        chain: false,
        release: true,
    };
    check(
        "ROLLBACK AND NO CHAIN RELEASE",
        StatementKind::Rollback(release),
    );
    check(
        "SAVEPOINT a",
        StatementKind::Savepoint(at("SAVEPOINT a", "a")),
    );
    check(
        "ROLLBACK TO SAVEPOINT b",
        StatementKind::RollbackTo(at("ROLLBACK TO SAVEPOINT b", "b")),
    );
    check(
        "RELEASE SAVEPOINT b",
        StatementKind::Release(at("RELEASE SAVEPOINT b", "b")),
    );
    check("XA START 'a'", StatementKind::Xa);
}

#[test]
fn commands_on_the_session() {
    check("USE `a b`", StatementKind::Use(at("USE `a b`", "`a b`")));
    let kill = |query, connection| StatementKind::Kill { query, connection };
    check("KILL 5", kill(false, Some(at("KILL 5", "5"))));
    check("KILL QUERY 5", kill(true, Some(at("KILL QUERY 5", "5"))));
    check("KILL CONNECTION_ID()", kill(false, None));
    check("KILL HARD QUERY ID 5", StatementKind::KillOther);
    check("KILL SOFT USER a", StatementKind::KillOther);
    check("LOCK TABLES t READ", StatementKind::LockTables);
    check("LOCK TABLE t WRITE", StatementKind::LockTables);
    check("UNLOCK TABLES", StatementKind::UnlockTables);
    check("LOCK INSTANCE FOR BACKUP", StatementKind::LockInstance);
    check("BACKUP STAGE START", StatementKind::LockInstance);
    check("BACKUP STAGE END", StatementKind::UnlockInstance);
    check(
        "FLUSH TABLES WITH READ LOCK",
        StatementKind::Flush { lock: true },
    );
    check(
        "FLUSH TABLES t FOR EXPORT",
        StatementKind::Flush { lock: true },
    );
    check("FLUSH STATUS", StatementKind::Flush { lock: false });
    check("HANDLER t OPEN", StatementKind::Handler);
    check(
        "PREPARE p FROM 'SELECT 1'",
        StatementKind::Prepare(at("PREPARE p FROM", "p")),
    );
    check(
        "EXECUTE p USING @a",
        StatementKind::Execute(at("EXECUTE p", "p")),
    );
    check("EXECUTE IMMEDIATE 'DELETE FROM t'", StatementKind::Unknown);
    check(
        "DEALLOCATE PREPARE p",
        StatementKind::Deallocate(at("DEALLOCATE PREPARE p", "p")),
    );
    check(
        "DROP PREPARE p",
        StatementKind::Deallocate(at("DROP PREPARE p", "p")),
    );
    check("CALL p(1)", StatementKind::Call);
    check("DO SLEEP(1)", StatementKind::Do);
    check("GET DIAGNOSTICS @a = NUMBER", StatementKind::GetDiagnostics);
    check("SET ROLE a", StatementKind::SetRole);
    check("SET PASSWORD = 'a'", StatementKind::Ddl);
    check(
        "SET STATEMENT max_statement_time=1 FOR SELECT 1",
        StatementKind::Unknown,
    );
    check("SHUTDOWN", StatementKind::Unknown);
    check("gibberish", StatementKind::Unknown);
}

#[test]
fn writes_and_definitions() {
    for text in [
        "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 2",
        "REPLACE t SET a = 1",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "WITH q AS (SELECT 1) DELETE FROM t",
    ] {
        check(text, StatementKind::Write);
        assert!(one(text).traits.any(StatementTraits::WRITES), "{text}");
    }
    check(
        "LOAD DATA LOCAL INFILE 'a' INTO TABLE t",
        StatementKind::LoadData { local: true },
    );
    check(
        "LOAD DATA INFILE 'a' INTO TABLE t",
        StatementKind::LoadData { local: false },
    );
    check("ANALYZE TABLE t", StatementKind::Maintenance);
    check("ANALYZE SELECT 1", StatementKind::Explain { analyze: true });
    check(
        "EXPLAIN ANALYZE FORMAT=TREE SELECT 1",
        StatementKind::Explain { analyze: true },
    );
    check(
        "EXPLAIN FORMAT=JSON INTO @a SELECT 1",
        StatementKind::Unknown,
    );
    for text in ["CREATE TEMPORARY TABLE t (a INT)", "DROP TEMPORARY TABLE t"] {
        check(text, StatementKind::Ddl);
        assert!(one(text).traits.any(StatementTraits::TEMPORARY), "{text}");
    }
    assert!(
        !one("SELECT temporary FROM t")
            .traits
            .any(StatementTraits::TEMPORARY)
    );
}

#[test]
fn the_next_transaction_is_not_the_session() {
    let set = |scope, read_only, isolation| StatementKind::SetTransaction {
        scope,
        read_only,
        isolation,
    };
    check(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
        set(
            VariableScope::Implicit,
            Some(true),
            Some(Isolation::ReadCommitted),
        ),
    );
    check(
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        set(VariableScope::Session, None, Some(Isolation::Serializable)),
    );
    check(
        "SET GLOBAL TRANSACTION READ WRITE",
        set(VariableScope::Global, Some(false), None),
    );
}

/// Returns one line for each assignment.
fn assigned(text: &str) -> Vec<String> {
    let facts = facts(text.as_bytes(), MYSQL);
    let statement = *facts.single().expect(text);
    assert_eq!(statement.kind, StatementKind::Set, "{text}");
    let of = |span: Span| String::from_utf8_lossy(span.of(text.as_bytes())).into_owned();
    let line = |one: Assignment| {
        let target = match one.target {
            Target::User(name) => format!("@{}", of(name)),
            Target::System(scope, name) => format!("{scope:?} {}", of(name)),
            other => format!("{other:?}"),
        };
        match one.value {
            Value::Literal(span) => format!("{target} = {}", of(span)),
            other => format!("{target} = {other:?}"),
        }
    };
    let all = assignments(text.as_bytes(), &statement, MYSQL).unwrap_or_default();
    all.into_iter().map(line).collect()
}

#[test]
fn set_is_read_assignment_by_assignment() {
    assert_eq!(
        assigned("SET @a = 1, @`b` := 'x', @c=NULL"),
        ["@a = 1", "@`b` = 'x'", "@c = NULL"]
    );
    assert_eq!(
        assigned("SET autocommit=0, SESSION sql_mode = ''"),
        ["Implicit autocommit = 0", "Session sql_mode = ''"]
    );
    assert_eq!(
        assigned("SET @@session.time_zone = '+01:00', @@x = DEFAULT"),
        ["Session time_zone = '+01:00'", "Implicit x = Default"]
    );
    assert_eq!(
        assigned("SET @@global.a = 1, GLOBAL b = -2, PERSIST c = ON"),
        ["Global a = 1", "Global b = -2", "Global c = ON"]
    );
    assert_eq!(
        assigned("SET NAMES utf8mb4 COLLATE utf8mb4_bin, @a = 2"),
        ["Names = utf8mb4 COLLATE utf8mb4_bin", "@a = 2"]
    );
    assert_eq!(
        assigned("SET CHARACTER SET latin1"),
        ["CharacterSet = latin1"]
    );
    assert_eq!(
        assigned("SET collation_connection = utf8mb4_unicode_ci"),
        ["Implicit collation_connection = utf8mb4_unicode_ci"]
    );
    assert_eq!(
        assigned("SET @a = (SELECT MAX(b, 1) FROM t), b = c + 1"),
        ["@a = Unknown", "Implicit b = Unknown"]
    );
    assert_eq!(
        assigned("SET @a = CURRENT_DATE, timestamp = CURRENT_TIMESTAMP"),
        ["@a = Unknown", "Implicit timestamp = Unknown"]
    );
}

#[test]
fn what_set_changes_beyond_the_session_or_our_sight_is_told() {
    assert!(
        one("SET GLOBAL a = 1")
            .traits
            .any(StatementTraits::SETS_GLOBAL)
    );
    assert!(
        one("SET @@global.a = 1")
            .traits
            .any(StatementTraits::SETS_GLOBAL)
    );
    assert!(one("SET a = b()").traits.any(StatementTraits::SETS_UNKNOWN));
    assert!(!one("SET a = 1").traits.any(StatementTraits::SETS_UNKNOWN));
    assert!(
        one("SET @a = 1")
            .traits
            .any(StatementTraits::SETS_VARIABLES)
    );
    assert_eq!(functions("SET @a = mine(1)"), ["mine"]);
    assert_eq!(tables("SET @a = (SELECT 1 FROM t)"), ["t"]);
}

#[test]
fn a_set_behind_another_statement_has_its_own_spans() {
    let text = b"SELECT 'x'; SET /* c */ @a = 'y'";
    let facts = facts(text, MYSQL);
    let set = facts.statements().nth(1).unwrap();
    let found = assignments(text, set, MYSQL).unwrap();
    let Target::User(name) = found[0].target else {
        panic!("{found:?}");
    };
    assert_eq!(name.of(text), b"a");
    let Value::Literal(value) = found[0].value else {
        panic!("{found:?}");
    };
    assert_eq!(value.of(text), b"'y'");
}

#[test]
fn a_set_in_a_comment_that_is_run_is_read_as_outside_of_one() {
    assert_eq!(assigned("/*!40101 SET NAMES utf8 */"), ["Names = utf8"]);
    let dumped = "/*!40101 SET @a = 1, sql_mode = 'ANSI' */;";
    let expect = ["@a = 1", "Implicit sql_mode = 'ANSI'"];
    assert_eq!(assigned(dumped), expect);
}

/// Fails if each SET is read from the beginning of the text. The limit is an upper bound and not a
/// measurement.
#[test]
fn a_text_of_very_many_sets_is_read_in_little_time() {
    let text = b"SET a=1;".repeat(32 * 1024);
    let begin = std::time::Instant::now();
    let read = |set| assignments(&text, &set, MYSQL).map_or(0, |all| all.len());
    let count: usize = statements(&text, MYSQL).map(read).sum();
    assert_eq!(count, 32 * 1024);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
}
