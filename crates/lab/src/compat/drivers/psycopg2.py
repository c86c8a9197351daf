"""Checks psycopg2, with its pool: everything is a text of the simple protocol."""

import io
import select
import threading
import time

import psycopg2
import psycopg2.errorcodes
import psycopg2.extensions
import psycopg2.extras
import psycopg2.pool

from check import HOST, PORT, check, end, equal, starves, together

READY = psycopg2.extensions.STATUS_READY


def connect(port=PORT, autocommit=True, **options):
    account = {"user": "sbtest", "password": "sbtest", "dbname": "sbtest", **options}
    connection = psycopg2.connect(host=HOST, port=port, **account)
    connection.autocommit = autocommit
    return connection


class Using:
    """A connection that is closed at the end, which psycopg2's own `with` does not do."""

    def __init__(self, **options):
        self.connection = connect(**options)

    def __enter__(self):
        return self.connection

    def __exit__(self, *_):
        self.connection.close()


def run(connection, text, parameters=None):
    cursor = connection.cursor()
    cursor.execute(text, parameters)
    return cursor


def value(connection, text, parameters=None):
    return run(connection, text, parameters).fetchone()[0]


def fails(error, body):
    try:
        body()
    except error as failure:
        return failure
    raise AssertionError(f"no {error.__name__}")


with Using() as db:
    run(db, "CREATE SCHEMA psycopg2")
    run(db, "CREATE TABLE psycopg2.notes (id serial PRIMARY KEY, tag text, number int UNIQUE)")


@check("what the driver reads at the login")
def _():
    with Using(application_name="app") as db:
        names = ["server_encoding", "client_encoding", "application_name", "DateStyle", "TimeZone",
                 "integer_datetimes", "standard_conforming_strings", "session_authorization"]
        return db.server_version, db.encoding, [db.get_parameter_status(name) for name in names]


@check("a wrong password")
def _():
    failure = fails(psycopg2.OperationalError, lambda: connect(password="wrong"))
    return "password authentication failed" in str(failure)


@check("parameters, also of many rows")
def _():
    with Using() as db:
        run(db, "CREATE TABLE psycopg2.many (a int, b text)")
        rows = [(number, f"it's {number}") for number in range(500)]
        psycopg2.extras.execute_values(db.cursor(), "INSERT INTO psycopg2.many VALUES %s", rows)
        psycopg2.extras.execute_batch(db.cursor(), "INSERT INTO psycopg2.many VALUES (%s, %s)",
                                      rows)
        return run(db, "SELECT count(*), max(b) FROM psycopg2.many WHERE a < %s", (10,)).fetchall()


@check("commit and rollback")
def _():
    with Using(autocommit=False) as db:
        insert = "INSERT INTO psycopg2.notes (tag) VALUES ('t')"
        with db:
            run(db, insert)
        run(db, insert)
        db.rollback()
        run(db, "SAVEPOINT a")
        run(db, insert)
        run(db, "ROLLBACK TO SAVEPOINT a")
        db.commit()
        equal(READY, db.status)
        return value(db, "SELECT count(*) FROM psycopg2.notes WHERE tag = 't'")


@check("a failed transaction")
def _():
    with Using(autocommit=False) as db:
        states = [fails(psycopg2.Error, lambda: run(db, text)).pgcode
                  for text in ("SELECT 1/0", "SELECT 1")]
        db.rollback()
        return states, value(db, "SELECT 1")


@check("set_session with isolation level, read only, deferrable")
def _():
    names = ["transaction_isolation", "transaction_read_only", "transaction_deferrable"]
    with Using(autocommit=False) as db:
        db.set_session(isolation_level="SERIALIZABLE", readonly=True, deferrable=True)
        inside = [value(db, f"SHOW {name}") for name in names]
        db.rollback()
        db.set_session(isolation_level="DEFAULT", readonly="DEFAULT", deferrable="DEFAULT")
        return inside, [value(db, f"SHOW {name}") for name in names]


@check("set_session in autocommit")
def _():
    with Using() as db:
        db.set_session(isolation_level="REPEATABLE READ", readonly=True)
        inside = value(db, "SHOW transaction_isolation"), value(db, "SHOW transaction_read_only")
        db.set_session(isolation_level="READ COMMITTED", readonly=False)
        return inside, value(db, "SHOW transaction_isolation")


@check("set_client_encoding")
def _():
    with Using() as db:
        db.set_client_encoding("LATIN1")
        found = value(db, "SELECT 'ä' || %s", ("ö",))
        return found, db.encoding, value(db, "SHOW client_encoding")


@check("reset()")
def _():
    with Using(autocommit=False) as db:
        run(db, "SET TimeZone = 'Asia/Tokyo'")
        db.commit()
        db.reset()
        return value(db, "SHOW TimeZone")


@check("copy_expert and copy_from")
def _():
    with Using() as db:
        run(db, "CREATE TABLE psycopg2.copied (a int, b text)")
        lines = "".join(f"{number}\trow\n" for number in range(10000))
        run(db, "SET search_path = psycopg2")
        db.cursor().copy_from(io.StringIO(lines), "copied", columns=("a", "b"))
        db.cursor().copy_expert("COPY psycopg2.copied FROM STDIN", io.StringIO(lines))
        out = io.StringIO()
        db.cursor().copy_expert("COPY psycopg2.copied TO STDOUT", out)
        bad = io.StringIO("1\tx\ny\tz\n")
        failure = fails(psycopg2.Error,
                        lambda: db.cursor().copy_expert("COPY psycopg2.copied FROM STDIN", bad))
        return len(out.getvalue()), failure.pgcode, value(db, "SELECT 1")


@check("cursors at the server")
def _():
    with Using(autocommit=False) as db:
        cursor = db.cursor("rows")
        cursor.execute("SELECT generate_series(1, 5000)")
        total = sum(row[0] for row in cursor)
        cursor.close()
        held = db.cursor("held", withhold=True, scrollable=True)
        held.execute("SELECT generate_series(1, 10)")
        db.commit()
        held.scroll(3)
        found = held.fetchone()[0]
        held.close()
        return total, found


def cancelled(cancel):
    with Using() as db:
        since = time.monotonic()
        timer = threading.Timer(0.3, lambda: cancel(db))
        timer.start()
        failure = fails(psycopg2.Error, lambda: run(db, "SELECT pg_sleep(10)"))
        timer.join()
        assert time.monotonic() - since < 5
        return failure.pgcode, value(db, "SELECT 6")


@check("cancel")
def _():
    return cancelled(lambda db: db.cancel())


@check("pg_cancel_backend of the process id that the driver knows")
def _():
    def cancel(db):
        with Using() as other:
            equal(True, value(other, "SELECT pg_cancel_backend(%s)", (db.get_backend_pid(),)))

    return cancelled(cancel)


@check("a notification of another session")
def _():
    with Using() as db, Using() as other:
        run(db, "LISTEN a")
        run(other, "NOTIFY a, 'hello'")
        select.select([db], [], [], 5)
        db.poll()
        return [(one.channel, one.payload) for one in db.notifies]


@check("the sender of a session's own notification")
def _():
    with Using() as db:
        run(db, "LISTEN own")
        run(db, "NOTIFY own")
        select.select([db], [], [], 5)
        db.poll()
        equal(db.get_backend_pid(), db.notifies[0].pid)


@check("values of all types")
def _():
    with Using() as db:
        psycopg2.extras.register_uuid()
        return run(db, "SELECT true, 5, 2::int8 ^ 40, 1.5::numeric, '2024-02-29'::date, "
                       "'1 day'::interval, ARRAY[1, NULL], '{\"a\": 1}'::jsonb, '[1,5)'::int4range,"
                       "'\\x00ff'::bytea::text, '00000000-0000-0000-0000-000000000007'::uuid"
                   ).fetchall()


@check("composites and hstore that the driver looks up")
def _():
    with Using() as db:
        run(db, "CREATE TYPE psycopg2.pair AS (a int, b text)")
        psycopg2.extras.register_composite("psycopg2.pair", db)
        found = value(db, "SELECT (1, 'b')::psycopg2.pair")
        failure = fails(psycopg2.ProgrammingError, lambda: psycopg2.extras.register_hstore(db))
        return found, str(failure)


@check("fields of errors, notices")
def _():
    with Using() as db:
        run(db, "INSERT INTO psycopg2.notes (tag, number) VALUES ('e', 1)")
        found = fails(psycopg2.IntegrityError, lambda: run(
            db, "INSERT INTO psycopg2.notes (tag, number) VALUES ('e', 1)"))
        run(db, "DO $$ BEGIN RAISE NOTICE 'one'; END $$")
        return found.pgcode, found.pgerror, found.diag.constraint_name, db.notices


@check("a value of 3 MB in a text")
def _():
    with Using() as db:
        return value(db, "SELECT length(%s)", ("x" * 3_000_000,))


@check("two-phase commit, which the server does not have enabled")
def _():
    with Using(autocommit=False) as db:
        db.tpc_begin(db.xid(1, "global", "branch"))
        run(db, "INSERT INTO psycopg2.notes (tag) VALUES ('two')")
        state = fails(psycopg2.Error, db.tpc_prepare).pgcode
        db.tpc_rollback()
        return state, value(db, "SELECT 1")


@check("an asynchronous connection")
def _():
    db = psycopg2.connect(host=HOST, port=PORT, user="sbtest", password="sbtest",
                          dbname="sbtest", async_=True)
    psycopg2.extras.wait_select(db)
    cursor = db.cursor()
    cursor.execute("SELECT 1; SELECT 2")
    psycopg2.extras.wait_select(db)
    found = cursor.fetchone()[0]
    db.close()
    return found


@check("a pool of 30 that 30 threads use")
def _():
    pool = psycopg2.pool.ThreadedConnectionPool(30, 30, host=HOST, port=PORT, user="sbtest",
                                                password="sbtest", dbname="sbtest")

    def work(own):
        for round_ in range(5):
            db = pool.getconn()
            number = 10_000 + own * 10 + round_
            run(db, "INSERT INTO psycopg2.notes (tag, number) VALUES ('pool', %s)", (number,))
            equal(number, value(db, "SELECT number FROM psycopg2.notes WHERE number = %s",
                                (number,)))
            db.commit()
            pool.putconn(db)

    together([lambda own=own: work(own) for own in range(30)])
    pool.closeall()
    with Using() as db:
        return value(db, "SELECT count(*) FROM psycopg2.notes WHERE tag = 'pool'")


def idle(name, step, **options):
    starves(name, lambda port: connect(port=port, **options), step,
            lambda db: (value(db, "SELECT 4"), db.autocommit or db.rollback()))


def committed(db):
    value(db, "SELECT count(*) FROM psycopg2.notes")
    db.commit()


def named(db):
    cursor = db.cursor("rows")
    cursor.execute("SELECT generate_series(1, 300)")
    cursor.fetchmany(5)
    cursor.close()
    db.commit()


def unlisten(db):
    run(db, "LISTEN own")
    run(db, "UNLISTEN own")


def reset(db):
    value(db, "SELECT 1")
    db.reset()


def cancelled_query(db):
    timer = threading.Timer(0.2, db.cancel)
    timer.start()
    fails(psycopg2.Error, lambda: run(db, "SELECT pg_sleep(5)"))
    timer.join()


idle("a login", lambda db: None)
idle("a query", lambda db: value(db, "SELECT 1"))
idle("a transaction", committed, autocommit=False)
idle("a cursor at the server", named, autocommit=False)
idle("set_session", lambda db: db.set_session(isolation_level="REPEATABLE READ"))
idle("set_client_encoding", lambda db: db.set_client_encoding("LATIN1"))
idle("reset()", reset, autocommit=False)
idle("LISTEN", lambda db: run(db, "LISTEN own"))
idle("UNLISTEN", unlisten)
idle("a text of 2 MB", lambda db: value(db, "SELECT length(%s)", ("x" * 2_000_000,)))
idle("a cancelled query", cancelled_query)
end()
