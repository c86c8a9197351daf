//! Tests the effects of functions, tables and views that are read from a real server's catalog.

use evenkeel_monitor::probe::Tls;
use evenkeel_monitor::{CatalogReader, WatchError};
use evenkeel_policy::route::Volatility::{self, Immutable, Stable, Unknown, Volatile};
use evenkeel_sql::catalog::Catalog;
use evenkeel_sql::session_state::analysis::CatalogLookup as _;

use crate::rig::PATIENCE;
use crate::server::{Postgres, account, block_on, shared};

/// Returns the catalog of a new database that contains these objects.
fn read(server: &Postgres, database: &str, sql: &str) -> Catalog {
    server.sql("postgres", &format!("CREATE DATABASE {database}"));
    server.sql(database, sql);
    look(server, &mut asker("postgres", database))
        .unwrap()
        .unwrap()
}

fn asker(user: &str, database: &str) -> CatalogReader {
    CatalogReader::new(account(user, Some(database)), &Tls::Off).unwrap()
}

fn look(server: &Postgres, asker: &mut CatalogReader) -> Result<Option<Catalog>, WatchError> {
    block_on(asker.read(&server.target(), 1, PATIENCE))
}

#[track_caller]
fn check_functions(catalog: &Catalog, expect: &[(&str, Volatility)]) {
    for (name, volatility) in expect {
        assert_eq!(catalog.function(name.as_bytes()), *volatility, "{name}");
    }
}

#[track_caller]
fn check_relations(catalog: &Catalog, expect: &[(&str, Volatility)]) {
    for (name, volatility) in expect {
        assert_eq!(catalog.relation(name.as_bytes()), *volatility, "{name}");
    }
}

#[test]
fn functions_count_by_their_worst_overload_and_aggregates_by_their_parts() {
    let catalog = read(
        &shared(),
        "functions",
        "CREATE SCHEMA other;
         CREATE FUNCTION pay(int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT $1';
         CREATE FUNCTION look(int) RETURNS int LANGUAGE sql STABLE AS 'SELECT $1';
         CREATE FUNCTION sum_up(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
         CREATE FUNCTION paired(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
         CREATE FUNCTION other.paired(text) RETURNS text LANGUAGE sql VOLATILE AS 'SELECT $1';
         CREATE FUNCTION other.clock_timestamp() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1';
         CREATE FUNCTION \"Mixed\"() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1';
         CREATE PROCEDURE work() LANGUAGE sql AS '';
         CREATE FUNCTION add(int, int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT $1 + $2';
         CREATE AGGREGATE total(int) (sfunc = add, stype = int);
         CREATE AGGREGATE fine(int) (sfunc = int4pl, stype = int);",
    );
    check_functions(
        &catalog,
        &[
            ("pay", Volatile),
            ("look", Stable),
            ("sum_up", Immutable),
            ("paired", Volatile),
            ("clock_timestamp", Volatile),
            ("Mixed", Stable),
            ("mixed", Unknown),
            ("work", Volatile),
            ("total", Volatile),
            ("fine", Immutable),
            ("no_such", Unknown),
        ],
    );
    assert_eq!(catalog.implied(), Volatility::None);
}

#[test]
fn built_in_functions_are_what_they_are_but_for_the_harmless_ones() {
    let catalog = read(&shared(), "builtin", "SELECT 1");
    check_functions(
        &catalog,
        &[
            ("lower", Immutable),
            ("count", Immutable),
            ("now", Stable),
            ("current_setting", Stable),
            ("random", Stable),
            ("clock_timestamp", Stable),
            ("gen_random_uuid", Stable),
            ("pg_sleep", Stable),
            ("pg_total_relation_size", Stable),
            ("current_timestamp", Stable),
            ("nextval", Volatile),
            ("set_config", Volatile),
            ("pg_advisory_lock", Volatile),
            ("pg_notify", Volatile),
            ("pg_terminate_backend", Volatile),
            ("pg_is_in_recovery", Volatile),
            ("pg_current_wal_lsn", Volatile),
            ("lo_create", Volatile),
            ("txid_current", Stable),
        ],
    );
    check_relations(
        &catalog,
        &[
            ("pg_class", Stable),
            ("pg_tables", Stable),
            ("columns", Stable),
            ("pg_locks", Volatile),
            ("pg_stat_activity", Volatile),
        ],
    );
}

#[test]
fn a_view_is_what_it_calls_and_reads_however_deep() {
    let catalog = read(
        &shared(),
        "views",
        "CREATE TABLE t (a int, b int);
         CREATE FUNCTION pay(int) RETURNS int LANGUAGE sql VOLATILE AS 'SELECT $1';
         CREATE FUNCTION eq(int, int) RETURNS bool LANGUAGE sql VOLATILE AS 'SELECT $1 = $2';
         CREATE OPERATOR === (leftarg = int, rightarg = int, function = eq);
         CREATE AGGREGATE paid(int) (sfunc = int4pl, stype = int, finalfunc = pay);
         CREATE VIEW plain AS SELECT a, lower('x') FROM t;
         CREATE VIEW pays AS SELECT pay(a) FROM t;
         CREATE VIEW over_pays AS SELECT * FROM plain, pays;
         CREATE VIEW two_up AS SELECT * FROM (SELECT 1 FROM over_pays) AS x;
         CREATE VIEW in_where AS SELECT 1 FROM t WHERE EXISTS (SELECT pay(b));
         CREATE VIEW by_operator AS SELECT 1 FROM t WHERE a === b;
         CREATE VIEW by_aggregate AS SELECT paid(a) FROM t;
         CREATE VIEW by_window AS SELECT paid(a) OVER () FROM t;
         CREATE SEQUENCE s;
         CREATE VIEW draws AS SELECT nextval('s');
         CREATE VIEW locks AS SELECT a FROM t FOR UPDATE;
         CREATE VIEW chance AS SELECT random();
         CREATE VIEW server AS SELECT * FROM pg_stat_activity;
         CREATE MATERIALIZED VIEW kept AS SELECT pay(a) FROM t;",
    );
    check_relations(
        &catalog,
        &[
            ("t", Stable),
            ("plain", Stable),
            ("pays", Volatile),
            ("over_pays", Volatile),
            ("two_up", Volatile),
            ("in_where", Volatile),
            ("by_operator", Volatile),
            ("by_aggregate", Volatile),
            ("by_window", Volatile),
            ("draws", Volatile),
            ("locks", Volatile),
            ("chance", Stable),
            ("server", Volatile),
            ("kept", Stable),
            ("s", Volatile),
        ],
    );
    assert_eq!(catalog.implied(), Volatile, "the operator");
}

#[test]
fn what_only_the_primary_has_is_not_read_elsewhere() {
    let catalog = read(
        &shared(),
        "tables",
        "CREATE FOREIGN DATA WRAPPER far; CREATE SERVER away FOREIGN DATA WRAPPER far;
         CREATE TABLE plain (a int);
         CREATE UNLOGGED TABLE unlogged (a int);
         CREATE FOREIGN TABLE elsewhere (a int) SERVER away;
         CREATE TABLE parts (a int) PARTITION BY LIST (a);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TABLE mixed (a int) PARTITION BY LIST (a);
         CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES IN (1);
         CREATE FOREIGN TABLE mixed_2 PARTITION OF mixed FOR VALUES IN (2) SERVER away;
         CREATE TABLE parent (a int); CREATE UNLOGGED TABLE child () INHERITS (parent);
         CREATE VIEW sees AS SELECT * FROM unlogged;
         CREATE SCHEMA other; CREATE TABLE other.unlogged (a int);",
    );
    check_relations(
        &catalog,
        &[
            ("plain", Stable),
            ("unlogged", Volatile),
            ("elsewhere", Volatile),
            ("parts", Stable),
            ("part_1", Stable),
            ("mixed", Volatile),
            ("mixed_1", Stable),
            ("parent", Volatile),
            ("child", Volatile),
            ("sees", Volatile),
        ],
    );
}

#[test]
fn row_security_counts_where_it_is_on_and_for_reads() {
    let catalog = read(
        &shared(),
        "security",
        "CREATE FUNCTION ask() RETURNS bool LANGUAGE sql VOLATILE AS 'SELECT true';
         CREATE UNLOGGED TABLE lookup (a int);
         CREATE TABLE off (a int); CREATE POLICY p ON off USING (ask());
         CREATE TABLE calls (a int); ALTER TABLE calls ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON calls USING (ask());
         CREATE TABLE reads (a int); ALTER TABLE reads ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON reads FOR SELECT USING (a IN (SELECT l.a FROM lookup AS l));
         CREATE TABLE writes (a int); ALTER TABLE writes ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON writes FOR UPDATE USING (ask());
         CREATE POLICY q ON writes FOR SELECT USING (a::text = current_setting('app.user'));
         CREATE VIEW over AS SELECT * FROM calls;",
    );
    check_relations(
        &catalog,
        &[
            ("off", Stable),
            ("calls", Volatile),
            ("reads", Volatile),
            ("writes", Stable),
            ("over", Volatile),
        ],
    );
}

#[test]
fn types_and_domains_of_users_are_implied() {
    let server = shared();
    let catalog = read(
        &server,
        "domains",
        "CREATE FUNCTION good(int) RETURNS bool LANGUAGE sql STABLE AS 'SELECT true';
         CREATE DOMAIN checked AS int CHECK (good(VALUE));",
    );
    assert_eq!(catalog.implied(), Stable);
    let catalog = read(
        &server,
        "casts",
        "CREATE TYPE pair AS (a int, b int);
         CREATE FUNCTION of_pair(pair) RETURNS int LANGUAGE sql AS 'SELECT 1';
         CREATE CAST (pair AS int) WITH FUNCTION of_pair(pair);",
    );
    assert_eq!(catalog.implied(), Volatile);
}

#[track_caller]
fn check_bonds(catalog: &Catalog, expect: &[(&str, Option<&str>)]) {
    for (name, bound) in expect {
        let pins = catalog
            .call_pins(name.as_bytes())
            .map(|pins| pins.to_string());
        assert_eq!(pins.as_deref(), *bound, "{name}");
    }
}

const LOCKS: &str = "advisory or named locks";
const SETS: &str = "untracked settings";
const DRAWS: &str = "sequence values";

#[test]
fn functions_bind_by_their_bodies_and_by_what_these_call() {
    let catalog = read(
        &shared(),
        "bodies",
        "CREATE FUNCTION login_as(text) RETURNS void LANGUAGE plpgsql STABLE AS
           $$ BEGIN PERFORM set_config('app.tenant', $1, false); END $$;
         CREATE FUNCTION for_now(text) RETURNS void LANGUAGE plpgsql AS
           $$ BEGIN PERFORM set_config('app.tenant', $1, true); END $$;
         CREATE FUNCTION atomic(bigint) RETURNS void LANGUAGE sql
           BEGIN ATOMIC SELECT pg_advisory_lock($1); END;
         CREATE FUNCTION returns() RETURNS bool LANGUAGE sql RETURN pg_try_advisory_lock(1);
         CREATE FUNCTION alias(bigint) RETURNS void LANGUAGE internal STRICT
           AS 'pg_advisory_lock_int8';
         CREATE FUNCTION plus(int, int) RETURNS int LANGUAGE internal STRICT IMMUTABLE AS 'int4pl';
         CREATE PROCEDURE work() LANGUAGE plpgsql AS $$ BEGIN PERFORM atomic(1); COMMIT; END $$;
         CREATE FUNCTION deep() RETURNS int LANGUAGE plpgsql AS
           $$ BEGIN CALL work(); RETURN 1; END $$",
    );
    check_bonds(
        &catalog,
        &[
            ("login_as", Some(SETS)),
            ("for_now", Some("")),
            ("atomic", Some(LOCKS)),
            ("returns", Some(LOCKS)),
            ("alias", Some(LOCKS)),
            ("plus", Some("")),
            ("work", Some(LOCKS)),
            ("deep", Some(LOCKS)),
            ("pg_advisory_lock", Some("")),
            ("nobody", None),
        ],
    );
    check_functions(&catalog, &[("login_as", Volatile), ("plus", Immutable)]);
}

#[test]
fn tables_bind_by_triggers_defaults_rules_and_what_is_changed_along() {
    let catalog = read(
        &shared(),
        "changes_along",
        "CREATE FUNCTION lock_it() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_advisory_lock(1); RETURN NULL; END $$;
         CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO logged VALUES (1); RETURN NULL; END $$;
         CREATE FUNCTION tenant() RETURNS text LANGUAGE sql AS
           $$ SELECT set_config('app.tenant', 'x', false) $$;
         CREATE TABLE plain (a int PRIMARY KEY);
         CREATE TABLE logged (a int);
         CREATE TRIGGER t AFTER INSERT ON logged FOR EACH ROW EXECUTE FUNCTION lock_it();
         CREATE TABLE watched (a int);
         CREATE TRIGGER t AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION log_it();
         CREATE TABLE off (a int);
         CREATE TRIGGER t AFTER INSERT ON off FOR EACH ROW EXECUTE FUNCTION lock_it();
         ALTER TABLE off DISABLE TRIGGER t;
         CREATE TABLE parent (a int PRIMARY KEY);
         CREATE TABLE child (a int REFERENCES parent ON DELETE CASCADE);
         CREATE TRIGGER t AFTER DELETE ON child FOR EACH ROW EXECUTE FUNCTION lock_it();
         CREATE TABLE loose (a int REFERENCES plain);
         CREATE TRIGGER t AFTER DELETE ON loose FOR EACH ROW EXECUTE FUNCTION lock_it();
         CREATE TABLE parts (a int) PARTITION BY LIST (a);
         CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);
         CREATE TRIGGER t AFTER INSERT ON part_1 FOR EACH ROW EXECUTE FUNCTION lock_it();
         CREATE TABLE defaulted (a int, b text DEFAULT tenant());
         CREATE TABLE numbered (a serial);
         CREATE TABLE identified (a int GENERATED ALWAYS AS IDENTITY);
         CREATE TABLE ruled (a int);
         CREATE RULE r AS ON INSERT TO ruled DO ALSO SELECT pg_advisory_lock(1);
         CREATE TABLE moved (a int);
         CREATE RULE r AS ON INSERT TO moved DO INSTEAD INSERT INTO logged VALUES (1);
         CREATE VIEW asks AS SELECT pg_try_advisory_lock(a) FROM plain;
         CREATE VIEW over_logged AS SELECT a FROM logged;",
    );
    for (name, writing, reading) in [
        ("plain", "", ""),
        ("logged", LOCKS, ""),
        ("watched", LOCKS, ""),
        ("off", "", ""),
        ("parent", LOCKS, ""),
        ("loose", LOCKS, ""),
        ("parts", LOCKS, ""),
        ("defaulted", SETS, ""),
        ("numbered", DRAWS, ""),
        ("identified", DRAWS, ""),
        ("ruled", LOCKS, ""),
        ("moved", LOCKS, ""),
        ("asks", LOCKS, LOCKS),
        ("over_logged", LOCKS, ""),
    ] {
        let found = catalog.triggers(name.as_bytes()).to_string();
        assert_eq!(found, writing, "writing to {name}");
        let found = catalog.views(name.as_bytes()).to_string();
        assert_eq!(found, reading, "reading from {name}");
    }
}

#[test]
fn what_has_not_changed_is_not_read_again_and_any_change_is_seen() {
    let server = shared();
    server.sql("postgres", "CREATE DATABASE changes");
    server.sql(
        "changes",
        "CREATE TABLE t (a int); CREATE VIEW v AS SELECT a FROM t;
         CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'",
    );
    let mut asker = asker("postgres", "changes");
    assert!(look(&server, &mut asker).unwrap().is_some());
    assert!(look(&server, &mut asker).unwrap().is_none());
    server.sql("changes", "INSERT INTO t VALUES (1); TRUNCATE t; ANALYZE t");
    assert!(look(&server, &mut asker).unwrap().is_none());
    let mut after = |sql: &str| {
        server.sql("changes", sql);
        look(&server, &mut asker).unwrap().expect(sql)
    };
    let catalog = after("ALTER FUNCTION f() VOLATILE");
    assert_eq!(catalog.function(b"f"), Volatile);
    let catalog = after("CREATE OR REPLACE VIEW v AS SELECT a + f() AS a FROM t");
    assert_eq!(catalog.relation(b"v"), Volatile);
    let catalog = after("ALTER FUNCTION f() STABLE");
    assert_eq!(catalog.relation(b"v"), Stable);
    let catalog = after("ALTER TABLE t SET UNLOGGED");
    assert_eq!(catalog.relation(b"v"), Volatile);
    let catalog = after("ALTER TABLE t SET LOGGED; ALTER VIEW v RENAME TO w");
    assert_eq!(catalog.relation(b"w"), Stable);
    assert_eq!(catalog.relation(b"v"), Unknown);
    let locks = "BEGIN PERFORM pg_advisory_lock(1); RETURN NEW; END";
    let trigger = format!("CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS '{locks}'");
    after(&trigger);
    let made = "CREATE TRIGGER one BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION g()";
    assert!(!after(made).triggers(b"t").is_empty());
    assert!(
        after(
            &trigger
                .replace("CREATE", "CREATE OR REPLACE")
                .replace("_lock", "_unlock")
        )
        .triggers(b"t")
        .is_empty()
    );
    after(&trigger.replace("CREATE", "CREATE OR REPLACE"));
    assert!(
        after("ALTER TABLE t DISABLE TRIGGER one")
            .triggers(b"t")
            .is_empty()
    );
    let identity = "ALTER TABLE t ALTER a SET NOT NULL;
        ALTER TABLE t ALTER a ADD GENERATED ALWAYS AS IDENTITY";
    let catalog = after(identity);
    assert!(!catalog.triggers(b"t").is_empty());
    after("CREATE TABLE child () INHERITS (t)");
    after("ALTER TABLE t ENABLE ROW LEVEL SECURITY");
    after("CREATE POLICY p ON t USING (a > f())");
    after("CREATE OPERATOR ~~~ (leftarg = int, rightarg = int, function = int4pl)");
    after("CREATE DOMAIN d AS int CHECK (VALUE > 1)");
    after("ALTER TABLE t ADD CHECK (a > 1)");
    after("CREATE INDEX ON t ((a + 1))");
    let event = "CREATE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM pg_advisory_lock(1); END';
         CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION e()";
    let of_events = after(event).event_pins().map(|pins| pins.to_string());
    assert_eq!(of_events.as_deref(), Some(LOCKS));
    assert_eq!(after("ALTER EVENT TRIGGER e DISABLE").event_pins(), None);
    after("DROP FUNCTION f() CASCADE");
    assert!(look(&server, &mut asker).unwrap().is_none());
}

#[test]
fn an_account_without_privileges_reads_it_and_one_that_may_not_enter_says_so() {
    let server = shared();
    server.sql("postgres", "CREATE ROLE reader LOGIN");
    read(
        &server,
        "closed",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'",
    );
    let mut asker = asker("reader", "closed");
    let catalog = look(&server, &mut asker).unwrap().unwrap();
    assert_eq!(catalog.function(b"f"), Stable);
    server.sql("postgres", "REVOKE CONNECT ON DATABASE closed FROM PUBLIC");
    let reported = look(&server, &mut asker).unwrap_err();
    assert!(
        matches!(&reported, WatchError::LoginRefused(_)),
        "{reported:?}"
    );
    assert!(
        reported
            .to_string()
            .contains("permission denied for database"),
        "{reported}"
    );
}
