"""Checks asyncpg, with its pool: everything is prepared, under names of its own."""

import asyncio
import datetime
import decimal
import io
import ipaddress
import uuid

import asyncpg

from check import HOST, PORT, check, end, equal, starves

loop = asyncio.new_event_loop()


def connect(port=PORT, **options):
    account = {"user": "sbtest", "password": "sbtest", "database": "sbtest", **options}
    return asyncpg.connect(host=HOST, port=port, **account)


def checked(name):
    """A check with a connection of its own."""

    def wrap(body):
        async def with_connection():
            db = await connect()
            try:
                return await body(db)
            finally:
                await db.close(timeout=5)

        check(name)(lambda: loop.run_until_complete(with_connection()))

    return wrap


async def fails(error, waiting):
    try:
        await waiting
    except error as failure:
        return failure
    raise AssertionError(f"no {error.__name__}")


async def prepare():
    db = await connect()
    await db.execute("""
        CREATE SCHEMA asyncpg;
        CREATE TABLE asyncpg.notes (id serial PRIMARY KEY, tag text, number int UNIQUE);
        CREATE TYPE asyncpg.mood AS ENUM ('sad', 'ok');
        CREATE TYPE asyncpg.pair AS (a int, b asyncpg.mood);
    """)
    await db.close()


loop.run_until_complete(prepare())


@checked("what the driver reads at the login")
async def _(db):
    settings = db.get_settings()
    names = ["server_encoding", "client_encoding", "DateStyle", "TimeZone", "application_name",
             "standard_conforming_strings", "session_authorization", "in_hot_standby"]
    return db.get_server_version()[:2], [getattr(settings, name) for name in names]


@checked("a wrong password")
async def _(db):
    failure = await fails(asyncpg.PostgresError, connect(password="wrong"))
    return failure.sqlstate


@checked("server_settings")
async def _(db):
    other = await connect(server_settings={"search_path": "asyncpg", "jit": "off"})
    found = await other.fetchval("SHOW search_path"), await other.fetchval("SHOW jit")
    await other.close()
    return found


@checked("a script of several statements")
async def _(db):
    return await db.execute("SELECT 1; CREATE TABLE asyncpg.script (a int); "
                            "INSERT INTO asyncpg.script VALUES (1), (2)")


@checked("parameters")
async def _(db):
    return [tuple(row) for row in await db.fetch("SELECT $1::int + 1, $2::text", 1, "a")]


@checked("a prepared statement in transactions and outside")
async def _(db):
    statement = await db.prepare("SELECT $1::int + 1")
    for number in range(30):
        equal(number + 1, await statement.fetchval(number))
        async with db.transaction():
            equal(number + 1, await statement.fetchval(number))
    types = [one.name for one in statement.get_parameters()]
    return types, [one.name for one in statement.get_attributes()]


@checked("300 prepared statements, more than the driver's cache holds")
async def _(db):
    for round_ in range(2):
        for number in range(300):
            equal(number + round_, await db.fetchval(f"SELECT $1::int + {number}", round_))


@checked("a prepared statement with a name, then EXECUTE of it")
async def _(db):
    statement = await db.prepare("SELECT $1::int + 1", name="own")
    return statement.get_name(), await db.fetchval("EXECUTE own(4)")


@checked("a prepared statement of a changed table")
async def _(db):
    await db.execute("CREATE TABLE asyncpg.changing (a int); "
                     "INSERT INTO asyncpg.changing VALUES (1)")
    await db.fetch("SELECT * FROM asyncpg.changing")
    other = await connect()
    await other.execute("ALTER TABLE asyncpg.changing ADD b int")
    await other.close()
    return [len(row) for row in await db.fetch("SELECT * FROM asyncpg.changing")]


@checked("commit, rollback, nested transactions")
async def _(db):
    insert = "INSERT INTO asyncpg.notes (tag) VALUES ('nested')"
    async with db.transaction():
        await db.execute(insert)
        inner = db.transaction()
        await inner.start()
        await db.execute(insert)
        await inner.rollback()
    outer = db.transaction(isolation="serializable", readonly=True, deferrable=True)
    await outer.start()
    level = await db.fetchval("SHOW transaction_isolation")
    await outer.rollback()
    return level, await db.fetchval("SELECT count(*) FROM asyncpg.notes WHERE tag = 'nested'")


@checked("a failed transaction")
async def _(db):
    states = []
    transaction = db.transaction()
    await transaction.start()
    for text in ("SELECT 1/0", "SELECT 1"):
        states.append((await fails(asyncpg.PostgresError, db.fetch(text))).sqlstate)
    await transaction.rollback()
    return states, await db.fetchval("SELECT 1")


@checked("COPY from the client and to the client")
async def _(db):
    await db.execute("CREATE TABLE asyncpg.copied (a int, b text)")
    rows = [(number, f"row {number}") for number in range(10000)]
    copied = await db.copy_records_to_table("copied", schema_name="asyncpg", records=rows)
    out = io.BytesIO()
    text = await db.copy_from_query("SELECT * FROM asyncpg.copied WHERE a < $1", 10, output=out)
    bad = await fails(asyncpg.PostgresError, db.copy_to_table(
        "copied", schema_name="asyncpg", source=io.BytesIO(b"1\ta\nx\tb\n")))
    return copied, text, len(out.getvalue()), bad.sqlstate


@checked("executemany")
async def _(db):
    insert = "INSERT INTO asyncpg.notes (tag, number) VALUES ('many', $1)"
    await db.executemany(insert, [(number,) for number in range(100, 600)])
    again = [(number,) for number in (700, 701, 100)]
    failure = await fails(asyncpg.UniqueViolationError, db.executemany(insert, again))
    return failure.detail, await db.fetchval(
        "SELECT count(*) FROM asyncpg.notes WHERE tag = 'many'")


@checked("cursors")
async def _(db):
    total = 0
    async with db.transaction():
        async for row in db.cursor("SELECT generate_series(1, $1::int)", 500, prefetch=50):
            total += row[0]
        cursor = await db.cursor("SELECT generate_series(1, 10)")
        await cursor.forward(4)
        return total, (await cursor.fetchrow())[0]


@checked("a query that its client gives up after a while, and one after a time limit")
async def _(db):
    task = asyncio.ensure_future(db.fetch("SELECT pg_sleep(10)"))
    await asyncio.sleep(0.3)
    task.cancel()
    await fails(asyncio.CancelledError, task)
    await fails(asyncio.TimeoutError, db.fetch("SELECT pg_sleep(10)", timeout=0.3))
    return await db.fetchval("SELECT 6")


@checked("the process id is pg_backend_pid()")
async def _(db):
    equal(db.get_server_pid(), await db.fetchval("SELECT pg_backend_pid()"))


@checked("pg_cancel_backend of the process id that the driver knows")
async def _(db):
    other = await connect()
    task = asyncio.ensure_future(other.fetch("SELECT pg_sleep(10)"))
    await asyncio.sleep(0.3)
    said = await db.fetchval("SELECT pg_cancel_backend($1)", other.get_server_pid())
    failure = await fails(asyncpg.PostgresError, task)
    await other.close()
    return said, failure.sqlstate


async def notified(db, sender):
    heard = asyncio.Queue()
    await db.add_listener("a", lambda _, pid, channel, words: heard.put_nowait(
        (pid, channel, words)))
    await sender.execute("SELECT pg_notify('a', $1)", "hello")
    return await asyncio.wait_for(heard.get(), 5)


@checked("a notification of another session")
async def _(db):
    other = await connect()
    found = await notified(db, other)
    await other.close()
    return found[1:]


@checked("the sender of a session's own notification")
async def _(db):
    equal(db.get_server_pid(), (await notified(db, db))[0])


@checked("values of all types")
async def _(db):
    values = [
        ("bool", True), ("int8", 2**40), ("float8", 1.5), ("numeric", decimal.Decimal("-1.5")),
        ("text", "ä\u20ac\U0001f600"), ("bytea", b"\x00\xff"), ("date", datetime.date(2024, 2, 29)),
        ("timestamptz", datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc)),
        ("interval", datetime.timedelta(days=3, seconds=5)), ("uuid", uuid.UUID(int=7)),
        ("inet", ipaddress.ip_address("::1")), ("int[]", [1, None, 3]), ("jsonb", '{"a": 1}'),
        ("int4range", asyncpg.Range(1, 5)),
    ]
    for kind, one in values:
        equal(one, await db.fetchval(f"SELECT $1::{kind}", one))


@checked("enums and composites, which make the driver look them up with jit off")
async def _(db):
    mood = await db.fetchval("SELECT 'ok'::asyncpg.mood")
    pair = await db.fetchval("SELECT (1, 'sad')::asyncpg.pair")
    moods = await db.fetchval("SELECT $1::asyncpg.mood[]", ["ok", "sad"])
    return mood, tuple(pair), moods, await db.fetchval("SHOW jit")


@checked("set_type_codec")
async def _(db):
    await db.set_type_codec("json", schema="pg_catalog", encoder=str, decoder=len)
    return await db.fetchval("SELECT '[1, 2]'::json")


@checked("fields of errors, notices")
async def _(db):
    seen = []
    db.add_log_listener(lambda _, message: seen.append((message.severity, message.message)))
    await db.execute("DO $$ BEGIN RAISE NOTICE 'one'; END $$")
    for text in ("SELEC 1", "SELECT nothing", "SELECT 1/0", "SELECT * FROM asyncpg.nowhere"):
        failure = await fails(asyncpg.PostgresError, db.fetch(text))
        seen.append((failure.sqlstate, failure.message, failure.position))
    return seen


@checked("a value of 3 MB")
async def _(db):
    large = "x" * 3_000_000
    equal(large, await db.fetchval("SELECT $1::text", large))


@checked("reset()")
async def _(db):
    await db.execute("SET TimeZone = 'Asia/Tokyo'; CREATE TEMP TABLE own (a int)")
    await db.execute("SELECT pg_advisory_lock(5)")
    await db.reset()
    return await db.fetchval("SHOW TimeZone")


@checked("a pool of 30 that 60 tasks use")
async def _(db):
    pool = await asyncpg.create_pool(host=HOST, port=PORT, user="sbtest", password="sbtest",
                                     database="sbtest", min_size=30, max_size=30)

    async def work(own):
        for round_ in range(3):
            number = 10_000 + own * 10 + round_
            async with pool.acquire() as one, one.transaction():
                await one.execute(
                    "INSERT INTO asyncpg.notes (tag, number) VALUES ('pool', $1)", number)
                equal(number, await one.fetchval(
                    "SELECT number FROM asyncpg.notes WHERE number = $1", number))

    await asyncio.gather(*[work(own) for own in range(60)])
    await pool.close()
    return await db.fetchval("SELECT count(*) FROM asyncpg.notes WHERE tag = 'pool'")


class Held:
    """A connection whose methods wait, for the test of starvation."""

    def __init__(self, port, options):
        self.db = loop.run_until_complete(connect(port, **options))

    def wait(self, awaitable):
        return loop.run_until_complete(awaitable)

    def close(self):
        self.wait(self.db.close(timeout=5))


def idle(name, step, **options):
    starves(name, lambda port: Held(port, options), lambda held: held.wait(step(held.db)),
            lambda held: held.wait(held.db.fetchval("SELECT 4")))


async def nothing(db):
    pass


async def transaction(db):
    async with db.transaction(isolation="serializable"):
        await db.fetch("SELECT count(*) FROM asyncpg.notes")


async def returned(db):
    await db.fetchval("SELECT 1")
    await db.reset()


async def listening(db):
    await db.add_listener("own", print)


async def unlisten(db):
    await db.add_listener("own", print)
    await db.remove_listener("own", print)


async def locked(db):
    if await db.fetchval("SELECT pg_try_advisory_lock(79)"):
        await db.execute("SELECT pg_advisory_unlock(79)")


async def cursor(db):
    async with db.transaction():
        async for _ in db.cursor("SELECT generate_series(1, 200)", prefetch=50):
            pass


async def given_up(db):
    await fails(asyncio.TimeoutError, db.fetch("SELECT pg_sleep(5)", timeout=0.2))


# asyncpg closes a statement that nothing refers to.
named_statements = []


async def named(db):
    statement = await db.prepare("SELECT $1::int", name="own")
    await statement.fetchval(1)
    named_statements.append(statement)


async def set_config(db):
    await db.execute("SELECT set_config('app.tenant', $1, false)", "seven")


idle("a login", nothing)
idle("a query", lambda db: db.fetchval("SELECT 1"))
idle("a query with parameters", lambda db: db.fetchval("SELECT $1::int", 1))
idle("a script", lambda db: db.execute("SELECT 1; SELECT 2"))
idle("a serializable transaction", transaction)
idle("a look at an enum", lambda db: db.fetchval("SELECT 'ok'::asyncpg.mood"))
idle("a look at a composite", lambda db: db.fetchval("SELECT (1, 'ok')::asyncpg.pair"))
idle("a named prepared statement", named)
idle("reset()", returned)
idle("set_config", set_config)
idle("server_settings", lambda db: db.fetchval("SELECT 1"), server_settings={"jit": "off"})
idle("a cursor", cursor)
idle("an advisory lock that was given back", locked)
idle("LISTEN", listening)
idle("UNLISTEN", unlisten)
idle("a query given up", given_up)
end()
