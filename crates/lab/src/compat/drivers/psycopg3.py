"""Checks psycopg 3, with psycopg_pool."""

import asyncio
import datetime
import decimal
import ipaddress
import threading
import time
import uuid

import psycopg
from psycopg import sql
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Jsonb
from psycopg.types.range import Range
from psycopg_pool import ConnectionPool

from check import HOST, PORT, check, end, equal, starves, together

ADDRESS = f"host={HOST} user=sbtest password=sbtest dbname=sbtest"
STATUS = [
    "server_version", "server_encoding", "client_encoding", "application_name", "DateStyle",
    "IntervalStyle", "TimeZone", "integer_datetimes", "standard_conforming_strings",
    "is_superuser", "session_authorization", "default_transaction_read_only", "in_hot_standby",
]


def connect(port=PORT, **options):
    options.setdefault("autocommit", True)
    return psycopg.connect(f"{ADDRESS} port={port}", **options)


def value(connection, text, parameters=None, **options):
    return connection.execute(text, parameters, **options).fetchone()[0]


def fails(error, body):
    try:
        body()
    except error as failure:
        return failure
    raise AssertionError(f"no {error.__name__}")


with connect() as db:
    db.execute("CREATE SCHEMA psycopg3")
    db.execute("CREATE TABLE psycopg3.notes (id serial PRIMARY KEY, tag text, number int UNIQUE)")
    db.execute("CREATE TYPE psycopg3.mood AS ENUM ('sad', 'ok')")
    db.execute("CREATE TYPE psycopg3.pair AS (a int, b text)")


@check("parameters that the server reports")
def _():
    with connect(application_name="app") as db:
        return [db.info.parameter_status(name) for name in STATUS]


@check("a wrong password")
def _():
    failure = fails(psycopg.OperationalError,
                    lambda: psycopg.connect(f"{ADDRESS} port={PORT}", password="wrong"))
    return "password authentication failed" in str(failure)


@check("an unknown database")
def _():
    failure = fails(psycopg.OperationalError,
                    lambda: psycopg.connect(f"{ADDRESS} port={PORT}", dbname="nowhere"))
    return str(failure).partition("FATAL")[2]


@check("startup options")
def _():
    with connect(options="-c statement_timeout=1234 -c search_path=psycopg3") as db:
        return value(db, "SHOW statement_timeout"), value(db, "SHOW search_path")


@check("a text without parameters")
def _():
    with connect() as db:
        return db.execute("SELECT 1, 'two', NULL").fetchall()


@check("several statements in a text")
def _():
    with connect() as db:
        results = []
        cursor = db.execute("SELECT 1; SELECT 2; SELECT 3")
        for _ in range(3):
            results.append(cursor.fetchone()[0])
            cursor.nextset()
        return results


@check("parameters")
def _():
    with connect() as db:
        return value(db, "SELECT %s::int + %s", (1, 2)), value(db, "SELECT %(a)s", {"a": "x"})


@check("a statement that is prepared by itself, in transactions and outside")
def _():
    with connect(autocommit=False) as db:
        for number in range(40):
            equal(number + 1, value(db, "SELECT %s::int + 1", (number,)))
            if number % 3:
                db.commit()


@check("300 prepared statements")
def _():
    with connect() as db:
        for round_ in range(2):
            for number in range(300):
                found = value(db, f"SELECT %s::int + {number}", (round_,), prepare=True)
                equal(number + round_, found)


@check("a prepared statement of a changed table")
def _():
    with connect() as db:
        db.execute("CREATE TABLE psycopg3.changing (a int)")
        for _ in range(3):
            db.execute("SELECT * FROM psycopg3.changing", prepare=True)
        db.execute("ALTER TABLE psycopg3.changing ADD b int")
        words = []
        for _ in range(2):
            try:
                cursor = db.execute("SELECT * FROM psycopg3.changing", prepare=True)
                words.append(len(cursor.description))
            except psycopg.Error as failure:
                words.append(failure.sqlstate)
        return words


@check("an error of a prepared statement, then the same again")
def _():
    with connect() as db:
        for number in (0, 1, 0, 1):
            if number:
                equal(1, value(db, "SELECT 1 / %s::int", (number,), prepare=True))
            else:
                fails(psycopg.errors.DivisionByZero,
                      lambda: db.execute("SELECT 1 / %s::int", (0,), prepare=True))


@check("commit, rollback, nested transactions")
def _():
    with connect() as db:
        insert = "INSERT INTO psycopg3.notes (tag) VALUES ('nested')"
        with db.transaction():
            db.execute(insert)
            try:
                with db.transaction():
                    db.execute(insert)
                    raise psycopg.Rollback
            except psycopg.Rollback:
                pass
            with db.transaction():
                db.execute(insert)
        with db.transaction(force_rollback=True):
            db.execute(insert)
        return value(db, "SELECT count(*) FROM psycopg3.notes WHERE tag = 'nested'")


@check("a failed transaction")
def _():
    with connect(autocommit=False) as db:
        fails(psycopg.errors.DivisionByZero, lambda: db.execute("SELECT 1/0"))
        state = db.info.transaction_status.name
        failure = fails(psycopg.Error, lambda: db.execute("SELECT 1"))
        db.rollback()
        return state, failure.sqlstate, db.info.transaction_status.name, value(db, "SELECT 1")


@check("isolation level, read only, deferrable")
def _():
    with connect(autocommit=False) as db:
        db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        db.read_only = True
        db.deferrable = True
        names = ["transaction_isolation", "transaction_read_only", "transaction_deferrable"]
        inside = [value(db, f"SHOW {name}") for name in names]
        db.rollback()
        db.isolation_level = db.read_only = db.deferrable = None
        return inside, [value(db, f"SHOW {name}") for name in names]


@check("SET, SET LOCAL, RESET, set_config")
def _():
    with connect() as db:
        seen = []
        db.execute("SET TimeZone = 'Asia/Tokyo'")
        seen.append(db.info.parameter_status("TimeZone"))
        with db.transaction():
            db.execute("SET LOCAL TimeZone = 'Europe/Rome'")
            seen.append(db.info.parameter_status("TimeZone"))
        seen.append(db.info.parameter_status("TimeZone"))
        db.execute("RESET TimeZone")
        db.execute("SELECT set_config('app.tenant', %s, false)", ("seven",))
        seen.append(value(db, "SELECT current_setting('app.tenant')"))
        db.execute("SELECT set_config('search_path', %s, false)", ("psycopg3",))
        seen.append(value(db, "SELECT current_schema()"))
        return seen


@check("COPY from the client and to the client")
def _():
    with connect() as db:
        db.execute("CREATE TABLE psycopg3.copied (a int, b text)")
        with db.cursor().copy("COPY psycopg3.copied FROM STDIN") as copy:
            for number in range(10000):
                copy.write_row((number, f"row {number}\t\n"))
        with db.cursor().copy("COPY psycopg3.copied (a, b) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "text"])
            copy.write_row((-1, "binary"))
        with db.cursor().copy("COPY psycopg3.copied TO STDOUT") as copy:
            rows = sum(1 for _ in copy.rows())
        with db.cursor().copy("COPY (SELECT 1, 'a') TO STDOUT (FORMAT BINARY)") as copy:
            return rows, sum(len(part) for part in copy)


@check("COPY that fails")
def _():
    def bad():
        with db.cursor().copy("COPY psycopg3.copied FROM STDIN") as copy:
            copy.write("1\ta\nx\tb\n")

    def stopped():
        with db.cursor().copy("COPY psycopg3.copied FROM STDIN") as copy:
            copy.write("1\ta\n")
            raise ValueError("stopped")

    with connect() as db:
        before = value(db, "SELECT count(*) FROM psycopg3.copied")
        state = fails(psycopg.Error, bad).sqlstate
        fails(ValueError, stopped)
        return state, value(db, "SELECT count(*) FROM psycopg3.copied") - before


@check("a pipeline")
def _():
    with connect() as db:
        with db.pipeline():
            cursors = [db.execute("SELECT %s::int", (number,)) for number in range(200)]
            return sum(cursor.fetchone()[0] for cursor in cursors)


@check("an error in a pipeline")
def _():
    with connect() as db:
        states = []
        with db.pipeline() as pipeline:
            db.execute("INSERT INTO psycopg3.notes (tag) VALUES ('pipeline')")
            for text in ("SELECT 1/0", "SELECT 1"):
                try:
                    db.execute(text)
                    pipeline.sync()
                except psycopg.Error as failure:
                    states.append(failure.sqlstate)
        rows = value(db, "SELECT count(*) FROM psycopg3.notes WHERE tag = 'pipeline'")
        return states, rows, value(db, "SELECT 5")


@check("executemany with RETURNING")
def _():
    with connect() as db:
        cursor = db.cursor()
        cursor.executemany(
            "INSERT INTO psycopg3.notes (tag, number) VALUES ('many', %s) RETURNING number",
            [(number,) for number in range(100, 200)], returning=True)
        found = [cursor.fetchone()[0]]
        while cursor.nextset():
            found.append(cursor.fetchone()[0])
        return sum(found), cursor.rowcount


@check("cursors at the server")
def _():
    with connect(autocommit=False) as db:
        with db.cursor("rows") as cursor:
            cursor.execute("SELECT generate_series(1, 5000)")
            found = sum(row[0] for row in cursor)
        with db.cursor("scroll", scrollable=True) as cursor:
            cursor.execute("SELECT generate_series(1, 10)")
            cursor.scroll(5)
            found = found, cursor.fetchone()[0]
            cursor.scroll(-3)
            found = *found, cursor.fetchone()[0]
        with db.cursor("held", withhold=True) as cursor:
            cursor.execute("SELECT generate_series(1, 3)")
            db.commit()
            return found, cursor.fetchall()


@check("client cursors and binary results")
def _():
    with connect() as db:
        plain = psycopg.ClientCursor(db).execute("SELECT %s, %s", ("it's", 5)).fetchone()
        return plain, value(db, "SELECT %b::int8", (2**40,), binary=True)


@check("a result is streamed")
def _():
    with connect() as db:
        rows = db.cursor().stream("SELECT generate_series(1, %s)", (5000,))
        return sum(row[0] for row in rows), value(db, "SELECT 1")


def cancelled(cancel):
    with connect() as db, connect() as other:
        since = time.monotonic()
        timer = threading.Timer(0.3, lambda: cancel(db))
        timer.start()
        failure = fails(psycopg.errors.QueryCanceled, lambda: db.execute("SELECT pg_sleep(10)"))
        timer.join()
        assert time.monotonic() - since < 5
        return failure.sqlstate, value(db, "SELECT 6"), value(other, "SELECT 7")


@check("cancel")
def _():
    return cancelled(lambda db: db.cancel())


@check("cancel over a second connection of libpq's new interface")
def _():
    return cancelled(lambda db: db.cancel_safe(timeout=5))


@check("pg_cancel_backend of the process id that the driver knows")
def _():
    def cancel(db):
        with connect() as other:
            equal(True, value(other, "SELECT pg_cancel_backend(%s)", (db.info.backend_pid,)))

    return cancelled(cancel)


@check("the process id is pg_backend_pid()")
def _():
    with connect() as db:
        equal(db.info.backend_pid, value(db, "SELECT pg_backend_pid()"))


@check("a notification of another session")
def _():
    with connect() as db, connect() as other:
        db.execute("LISTEN a")
        other.execute("SELECT pg_notify('a', %s)", ("hello",))
        other.execute("NOTIFY b, 'not heard'")
        return [(one.channel, one.payload) for one in db.notifies(timeout=5, stop_after=1)]


@check("the sender of a notification")
def _():
    with connect() as db, connect() as other:
        db.execute("LISTEN a")
        other.execute("NOTIFY a")
        sender = next(db.notifies(timeout=5, stop_after=1)).pid
        equal(other.info.backend_pid, sender)


@check("the sender of a session's own notification")
def _():
    with connect() as db:
        db.execute("LISTEN own")
        db.execute("NOTIFY own")
        equal(db.info.backend_pid, next(db.notifies(timeout=5, stop_after=1)).pid)


@check("no notification after UNLISTEN")
def _():
    with connect() as db, connect() as other:
        db.execute("LISTEN a")
        db.execute("UNLISTEN a")
        other.execute("NOTIFY a")
        return list(db.notifies(timeout=0.5))


@check("values of all types")
def _():
    values = [
        True, -5, 2**40, 1.5, decimal.Decimal("-12345.678901"), "ä\u20ac\U0001f600", b"\x00\xff",
        datetime.date(2024, 2, 29), datetime.time(1, 2, 3, 4),
        datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.timezone.utc),
        datetime.timedelta(days=3, seconds=5), uuid.UUID(int=7), ipaddress.ip_address("::1"),
        [1, None, 3], Jsonb({"a": [1]}),
    ]
    with connect() as db:
        for binary in (False, True):
            for one in values:
                found = value(db, "SELECT %s", (one,), binary=binary)
                equal(one.obj if isinstance(one, Jsonb) else one, found)
            equal(Range(1, 5), value(db, "SELECT %s::int4range", (Range(1, 5),), binary=binary))


@check("enums and composites that the driver looks up")
def _():
    import enum

    class Mood(enum.Enum):
        sad = 1
        ok = 2

    with connect() as db:
        register_enum(EnumInfo.fetch(db, "psycopg3.mood"), db, Mood)
        register_composite(CompositeInfo.fetch(db, "psycopg3.pair"), db)
        mood = value(db, "SELECT %s::psycopg3.mood", (Mood.ok,))
        pair = value(db, "SELECT (1, 'b')::psycopg3.pair")
        return mood.name, pair.a, pair.b


@check("fields of errors")
def _():
    with connect() as db:
        db.execute("INSERT INTO psycopg3.notes (tag, number) VALUES ('e', 1)")
        seen = []
        for text in ("INSERT INTO psycopg3.notes (tag, number) VALUES ('e', 1)", "SELEC 1",
                     "SELECT nothing FROM psycopg3.notes", "SELECT * FROM psycopg3.nowhere",
                     "SELECT 1/0"):
            found = fails(psycopg.Error, lambda: db.execute(text)).diag
            seen.append([found.sqlstate, found.severity, found.message_primary,
                         found.message_detail, found.statement_position, found.table_name,
                         found.constraint_name, found.source_function])
        return seen


@check("notices")
def _():
    with connect() as db:
        seen = []
        db.add_notice_handler(lambda notice: seen.append((notice.severity, notice.message_primary)))
        db.execute("DO $$ BEGIN RAISE NOTICE 'one'; RAISE WARNING 'two'; END $$")
        return seen


@check("statement_timeout")
def _():
    with connect() as db:
        db.execute("SET statement_timeout = 100")
        state = fails(psycopg.Error, lambda: db.execute("SELECT pg_sleep(3)")).sqlstate
        return state, value(db, "SELECT 1")


@check("values of 3 MB, bound and in a text")
def _():
    with connect() as db:
        large = "x" * 3_000_000
        equal(large, value(db, "SELECT %s", (large,)))
        text = sql.SQL("SELECT length({})").format(sql.Literal(large))
        return value(db, text)


@check("temporary tables and advisory locks")
def _():
    with connect() as db, connect() as other:
        db.execute("CREATE TEMP TABLE own (a int)")
        db.execute("INSERT INTO own VALUES (1)")
        db.execute("SELECT pg_advisory_lock(77)")
        rows = value(db, "SELECT count(*) FROM own")
        taken = value(other, "SELECT pg_try_advisory_lock(77)")
        db.execute("SELECT pg_advisory_unlock(77)")
        free = value(other, "SELECT pg_try_advisory_lock(77)")
        fails(psycopg.errors.UndefinedTable, lambda: other.execute("SELECT * FROM own"))
        return rows, taken, free


@check("a pool of 30 that 60 threads use")
def _():
    pool = ConnectionPool(f"{ADDRESS} port={PORT}", min_size=30, max_size=30, open=True)
    pool.wait(timeout=20)

    def work(own):
        for round_ in range(3):
            with pool.connection() as db:
                number = 10_000 + own * 10 + round_
                db.execute("INSERT INTO psycopg3.notes (tag, number) VALUES ('pool', %s)", (number,))
                found = value(db, "SELECT number FROM psycopg3.notes WHERE number = %s", (number,))
                equal(number, found)

    together([lambda own=own: work(own) for own in range(60)])
    with pool.connection() as db:
        rows = value(db, "SELECT count(*) FROM psycopg3.notes WHERE tag = 'pool'")
    pool.check()
    pool.close()
    return rows


@check("asynchronous connections")
def _():
    async def run():
        address = f"{ADDRESS} port={PORT}"
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as db:
            async with db.pipeline():
                cursors = [await db.execute("SELECT %s::int", (n,)) for n in range(20)]
                total = sum([(await cursor.fetchone())[0] for cursor in cursors])
            task = asyncio.create_task(db.execute("SELECT pg_sleep(10)"))
            await asyncio.sleep(0.3)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            return total, (await (await db.execute("SELECT 8")).fetchone())[0]

    return asyncio.run(run())


@check("DROP DATABASE after its clients have left")
def _():
    with connect(user="postgres", password="postgres") as db:
        db.execute("CREATE DATABASE psycopg3_other")
        with connect(user="postgres", password="postgres", dbname="psycopg3_other") as other:
            equal(1, value(other, "SELECT 1"))
        db.execute("DROP DATABASE psycopg3_other")


def idle(name, step, **options):
    starves(name, lambda port: connect(port, **options), step, lambda db: value(db, "SELECT 4"))


def transaction(db):
    with db.transaction():
        value(db, "SELECT count(*) FROM psycopg3.notes")


def serializable(db):
    db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    value(db, "SELECT count(*) FROM psycopg3.notes")
    db.commit()
    db.autocommit = True


def prepared(db):
    for _ in range(10):
        value(db, "SELECT %s::int", (1,))


def prepared_by_text(db):
    db.execute("PREPARE own AS SELECT 1")
    db.execute("EXECUTE own")
    db.execute("DEALLOCATE own")


def cursor(db):
    with db.transaction(), db.cursor("rows") as rows:
        rows.execute("SELECT generate_series(1, 300)")
        rows.fetchmany(10)


def held_cursor(db):
    with db.cursor("rows", withhold=True) as rows:
        rows.execute("SELECT generate_series(1, 300)")
        rows.fetchmany(10)


def copied(db):
    with db.cursor().copy("COPY (SELECT 1) TO STDOUT") as copy:
        list(copy.rows())


def temporary(db):
    db.execute("CREATE TEMP TABLE own (a int)")
    db.execute("DROP TABLE own")


def locked(db):
    if value(db, "SELECT pg_try_advisory_lock(78)"):
        db.execute("SELECT pg_advisory_unlock(78)")


def unlisten(db):
    db.execute("LISTEN own")
    db.execute("UNLISTEN own")


def cancelled_query(db):
    timer = threading.Timer(0.2, db.cancel)
    timer.start()
    fails(psycopg.errors.QueryCanceled, lambda: db.execute("SELECT pg_sleep(5)"))
    timer.join()


def pipelined(db):
    with db.pipeline():
        for _ in range(10):
            db.execute("SELECT %s::int", (1,))


idle("a login", lambda db: None)
idle("a query", lambda db: value(db, "SELECT 1"))
idle("a query with parameters", lambda db: value(db, "SELECT %s::int", (1,)))
idle("a prepared statement", prepared)
idle("PREPARE and DEALLOCATE", prepared_by_text)
idle("a transaction", transaction)
idle("a serializable transaction", serializable, autocommit=False)
idle("SET", lambda db: db.execute("SET TimeZone = 'Asia/Tokyo'"))
idle("set_config", lambda db: db.execute("SELECT set_config('app.a', %s, false)", ("b",)))
idle("startup options", lambda db: value(db, "SELECT 1"), options="-c statement_timeout=9s")
idle("a cursor at the server", cursor)
idle("a closed cursor WITH HOLD", held_cursor)
idle("COPY", copied)
idle("a pipeline", pipelined)
idle("a look at an enum", lambda db: EnumInfo.fetch(db, "psycopg3.mood"))
idle("a temporary table that was dropped", temporary)
idle("an advisory lock that was given back", locked)
idle("LISTEN", lambda db: db.execute("LISTEN own"))
idle("UNLISTEN", unlisten)
idle("a cancelled query", cancelled_query)
end()
