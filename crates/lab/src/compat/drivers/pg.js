// Checks pg (node-postgres), with pg-pool, pg-cursor and pg-copy-streams.

const { Client, Pool } = require('pg');
const Cursor = require('pg-cursor');
const { from, to } = require('pg-copy-streams');
const { pipeline } = require('stream/promises');
const { Readable } = require('stream');
const { host, port, check, run, equal, fails, starves, sleep } = require('./check.js');

const account = { host, port, user: 'sbtest', password: 'sbtest', database: 'sbtest' };

async function connect(options = {}) {
    const client = new Client({ ...account, ...options });
    client.on('error', () => undefined);
    await client.connect();
    return client;
}

function checked(name, body) {
    check(name, async () => {
        const client = await connect();
        try {
            return await body(client);
        } finally {
            await client.end();
        }
    });
}

const value = async (client, query, values) => {
    const result = await client.query({ text: query, values, rowMode: 'array' });
    return result.rows[0][0];
};

checked('a schema', async (db) => {
    await db.query(`CREATE SCHEMA node_pg; SET search_path = node_pg;
        CREATE TABLE notes (id serial PRIMARY KEY, tag text, number int UNIQUE)`);
});

check('a wrong password', async () => {
    const failure = await fails(connect({ password: 'wrong' }));
    return failure.code;
});

check('options of the login', async () => {
    const db = await connect({
        application_name: 'app', statement_timeout: 4321, lock_timeout: 1234,
        idle_in_transaction_session_timeout: 9876, options: '-c search_path=node_pg',
    });
    const found = [];
    for (const name of ['application_name', 'statement_timeout', 'lock_timeout',
        'idle_in_transaction_session_timeout', 'search_path']) {
        found.push(await value(db, `SHOW ${name}`));
    }
    await db.end();
    return found;
});

checked('a text of several statements', async (db) => {
    const results = await db.query('SELECT 1 AS a; SELECT 2 AS b');
    return results.map((result) => result.rows);
});

checked('parameters of several types', async (db) => {
    const result = await db.query(
        'SELECT $1::int a, $2::text b, $3::jsonb c, $4::timestamptz d, $5::bytea e, $6::int[] f,'
        + ' $7::bool g, $8::numeric h, $9::int8 i',
        [1, 'ä\u{1f600}', { a: [1] }, new Date(0), Buffer.from([0, 255]), [1, null], true, '1.50',
            '9007199254740993']);
    return [result.rows, result.fields.map((field) => field.dataTypeID)];
});

checked('a named statement in transactions and outside', async (db) => {
    const statement = (number) => ({ name: 'plus', text: 'SELECT $1::int + 1', values: [number],
        rowMode: 'array' });
    for (let number = 0; number < 30; number++) {
        await db.query('BEGIN');
        equal(number + 1, (await db.query(statement(number))).rows[0][0]);
        await db.query('COMMIT');
        equal(number + 2, (await db.query(statement(number + 1))).rows[0][0]);
    }
});

checked('300 named statements', async (db) => {
    for (let round = 0; round < 2; round++) {
        for (let number = 0; number < 300; number++) {
            const query = { name: `s${number}`, text: `SELECT $1::int + ${number}`,
                values: [round], rowMode: 'array' };
            equal(number + round, (await db.query(query)).rows[0][0]);
        }
    }
});

checked('an error of a named statement, then the same again', async (db) => {
    const seen = [];
    for (const number of [0, 1, 0, 1]) {
        const query = db.query({ name: 'division', text: 'SELECT 1 / $1::int', values: [number] });
        seen.push(number ? (await query).rows.length : (await fails(query)).code);
    }
    return seen;
});

checked('200 queries sent without waiting', async (db) => {
    const all = [];
    for (let number = 0; number < 200; number++) {
        all.push(value(db, 'SELECT $1::int', [number]));
    }
    return (await Promise.all(all)).reduce((sum, one) => sum + one, 0);
});

checked('commit, rollback, savepoint', async (db) => {
    const insert = "INSERT INTO node_pg.notes (tag) VALUES ('t')";
    for (const text of ['BEGIN', insert, 'SAVEPOINT a', insert, 'ROLLBACK TO a', 'COMMIT',
        'BEGIN ISOLATION LEVEL SERIALIZABLE', insert, 'ROLLBACK']) {
        await db.query(text);
    }
    return value(db, "SELECT count(*) FROM node_pg.notes WHERE tag = 't'");
});

checked('a failed transaction', async (db) => {
    await db.query('BEGIN');
    const codes = [(await fails(db.query('SELECT 1/0'))).code,
        (await fails(db.query('SELECT 1'))).code];
    await db.query('ROLLBACK');
    return [codes, await value(db, 'SELECT 1')];
});

checked('COPY from the client and to the client', async (db) => {
    await db.query('CREATE TABLE node_pg.copied (a int, b text)');
    const lines = Array.from({ length: 10_000 }, (_, number) => `${number}\trow\n`);
    await pipeline(Readable.from(lines), db.query(from('COPY node_pg.copied FROM STDIN')));
    let size = 0;
    for await (const chunk of db.query(to('COPY node_pg.copied TO STDOUT'))) {
        size += chunk.length;
    }
    const bad = await fails(pipeline(Readable.from(['1\ta\n', 'x\tb\n']),
        db.query(from('COPY node_pg.copied FROM STDIN'))));
    return [size, bad.code, await value(db, 'SELECT count(*) FROM node_pg.copied')];
});

checked('a cursor', async (db) => {
    const cursor = db.query(new Cursor('SELECT generate_series(1, $1::int) AS n', [500]));
    let sum = 0;
    for (;;) {
        const rows = await cursor.read(50);
        if (rows.length === 0) break;
        sum += rows.reduce((total, row) => total + row.n, 0);
    }
    await cursor.close();
    const left = db.query(new Cursor('SELECT generate_series(1, 500) AS n'));
    await left.read(10);
    await left.close();
    return [sum, await value(db, 'SELECT 7')];
});

checked('pg_cancel_backend of the process id that the driver knows', async (db) => {
    const other = await connect();
    const slow = fails(other.query('SELECT pg_sleep(10)'));
    await sleep(300);
    const said = await value(db, 'SELECT pg_cancel_backend($1)', [other.processID]);
    const code = (await slow).code;
    const found = await value(other, 'SELECT 6');
    await other.end();
    return [said, code, found];
});

checked('the process id is pg_backend_pid()', async (db) => {
    equal(db.processID, await value(db, 'SELECT pg_backend_pid()'));
});

checked('query_timeout', async () => {
    const db = await connect({ query_timeout: 300 });
    const words = (await fails(db.query('SELECT pg_sleep(3)'))).message;
    db.connection.stream.destroy();
    return words;
});

async function notified(db, sender) {
    const heard = new Promise((done) => db.on('notification', done));
    await db.query('LISTEN a');
    await sender.query("SELECT pg_notify('a', $1)", ['hello']);
    return heard;
}

checked('a notification of another session', async (db) => {
    const other = await connect();
    const { channel, payload, processId } = await notified(db, other);
    const isSender = processId === other.processID;
    await other.end();
    return [channel, payload, isSender];
});

checked("the sender of a session's own notification", async (db) => {
    equal(db.processID, (await notified(db, db)).processId);
});

checked('fields of errors, notices', async (db) => {
    const seen = [];
    db.on('notice', (notice) => seen.push([notice.severity, notice.message]));
    await db.query("DO $$ BEGIN RAISE NOTICE 'one'; END $$");
    await db.query("INSERT INTO node_pg.notes (tag, number) VALUES ('e', 1)");
    for (const text of ["INSERT INTO node_pg.notes (tag, number) VALUES ('e', 1)", 'SELEC 1',
        'SELECT nothing', 'SELECT 1/0']) {
        const { code, message, detail, position, constraint, routine } =
            await fails(db.query(text));
        seen.push([code, message, detail, position, constraint, routine]);
    }
    return seen;
});

checked('SET follows', async (db) => {
    await db.query("SET TimeZone = 'Asia/Tokyo'");
    await db.query("SELECT set_config('app.tenant', $1, false)", ['seven']);
    return [await value(db, 'SHOW TimeZone'),
        await value(db, "SELECT current_setting('app.tenant')")];
});

checked('a value of 3 MB', async (db) => {
    const large = 'x'.repeat(3_000_000);
    equal(large, await value(db, 'SELECT $1::text', [large]));
});

check('a pool of 30 that 60 tasks use', async () => {
    const pool = new Pool({ ...account, max: 30 });
    const work = async (own) => {
        for (let round = 0; round < 3; round++) {
            const number = 10_000 + own * 10 + round;
            const db = await pool.connect();
            await db.query('BEGIN');
            await db.query("INSERT INTO node_pg.notes (tag, number) VALUES ('pool', $1)", [number]);
            equal(number, await value(db, 'SELECT number FROM node_pg.notes WHERE number = $1',
                [number]));
            await db.query('COMMIT');
            db.release();
        }
    };
    await Promise.all(Array.from({ length: 60 }, (_, own) => work(own)));
    const result = await pool.query("SELECT count(*) FROM node_pg.notes WHERE tag = 'pool'");
    await pool.end();
    return result.rows;
});

function idle(name, step, options = {}) {
    starves(name, {
        connect: (smallPort) => connect({ ...options, port: smallPort }),
        step,
        ask: (db) => value(db, 'SELECT 4'),
        close: (db) => db.end(),
    });
}

idle('a login', async () => undefined);
idle('a login with options', (db) => db.query('SELECT 1'),
    { application_name: 'app', statement_timeout: 4321, options: '-c search_path=node_pg' });
idle('a query', (db) => db.query('SELECT 1'));
idle('a query with parameters', (db) => db.query('SELECT $1::int', [1]));
idle('a named statement', (db) => db.query({ name: 'own', text: 'SELECT $1::int', values: [1] }));
idle('a transaction', async (db) => {
    await db.query('BEGIN');
    await db.query('SELECT count(*) FROM node_pg.notes');
    await db.query('COMMIT');
});
idle('SET', (db) => db.query("SET TimeZone = 'Asia/Tokyo'"));
idle('set_config', (db) => db.query("SELECT set_config('app.tenant', $1, false)", ['seven']));
idle('a cursor', async (db) => {
    const cursor = db.query(new Cursor('SELECT generate_series(1, 500) AS n'));
    await cursor.read(10);
    await cursor.close();
});
idle('LISTEN', (db) => db.query('LISTEN own'));
idle('UNLISTEN', async (db) => {
    await db.query('LISTEN own');
    await db.query('UNLISTEN own');
});
idle('an advisory lock that was given back', async (db) => {
    if (await value(db, 'SELECT pg_try_advisory_lock(80)')) {
        await db.query('SELECT pg_advisory_unlock(80)');
    }
});
run();
