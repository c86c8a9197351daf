// Checks mysql2: texts, prepared statements and its pool.

const mysql = require('mysql2/promise');
const { Readable } = require('stream');
const { host, port, check, run, equal, fails, starves, sleep } = require('./check.js');

const account = { host, port, user: 'sbtest', password: 'sbtest', database: 'sbtest' };

const connect = (options = {}) => mysql.createConnection({ ...account, ...options });

function checked(name, body, options = {}) {
    check(name, async () => {
        const db = await connect(options);
        db.on('error', () => undefined);
        try {
            return await body(db);
        } finally {
            db.destroy();
        }
    });
}

const value = async (db, text, values) => {
    const [rows] = await db.query({ sql: text, rowsAsArray: true, values });
    return rows[0][0];
};

const executed = async (db, text, values) => {
    const [rows] = await db.execute({ sql: text, rowsAsArray: true, values });
    return rows[0][0];
};

checked('a table', async (db) => {
    await db.query('CREATE TABLE mysql2_notes (id INT PRIMARY KEY AUTO_INCREMENT, tag VARCHAR(20),'
        + ' number INT UNIQUE, moment DATETIME(6), bytes BLOB, amount DECIMAL(10, 3), doc JSON)'
        + ' CHARACTER SET utf8mb4');
});

checked('session variables after the login', async (db) => {
    const names = ['autocommit', 'character_set_client', 'character_set_connection',
        'character_set_results', 'collation_connection', 'sql_mode', 'time_zone'];
    return value(db, `SELECT CONCAT_WS(' ', ${names.map((name) => '@@' + name).join(', ')})`);
});

check('a wrong password', async () => {
    const failure = await fails(connect({ password: 'wrong' }));
    return [failure.code, failure.errno, failure.sqlState];
});

check('an unknown database', async () => {
    const failure = await fails(connect({ database: 'nowhere' }));
    return [failure.code, failure.errno, failure.sqlState];
});

checked('a text with values', (db) =>
    value(db, "SELECT CONCAT(?, ' ', ?)", ["it's", 5]));

checked('several statements in a text', async (db) => {
    const [results] = await db.query('SELECT 1 AS a; SELECT 2 AS b; DO 0');
    return [results[0], results[1], results[2].affectedRows];
}, { multipleStatements: true });

checked('a prepared statement in transactions and outside', async (db) => {
    for (let number = 0; number < 30; number++) {
        await db.beginTransaction();
        equal(number + 1, Number(await executed(db, 'SELECT ? + 1', [number])));
        await db.commit();
        equal(number + 1, Number(await executed(db, 'SELECT ? + 1', [number])));
    }
});

checked('300 prepared statements', async (db) => {
    for (let number = 0; number < 300; number++) {
        equal(number + 1, Number(await executed(db, `SELECT ? + ${number}`, [1])));
    }
}, { maxPreparedStatements: 100 });

checked('values of several types, prepared', async (db) => {
    await db.execute('INSERT INTO mysql2_notes (tag, number, moment, bytes, amount, doc)'
        + ' VALUES (?, ?, ?, ?, ?, ?)',
    ['ä\u{1f600}', -5, '2024-02-29 01:02:03.000004', Buffer.from([0, 255]), '-12.345', '{"a": 1}']);
    const [rows, fields] = await db.execute(
        'SELECT tag, number, moment, bytes, amount, doc FROM mysql2_notes WHERE number = ?', [-5]);
    return [rows, fields.map((field) => [field.name, field.columnType, field.flags])];
}, { charset: 'utf8mb4', dateStrings: true });

checked('insertId, affectedRows, changedRows, info', async (db) => {
    const [one] = await db.query("INSERT INTO mysql2_notes (tag) VALUES ('i'), ('i')");
    const [same] = await db.query("UPDATE mysql2_notes SET tag = 'i' WHERE tag = 'i'");
    const isId = one.insertId === await value(db, 'SELECT LAST_INSERT_ID()');
    return [isId, one.affectedRows, one.info, same.affectedRows, same.changedRows, same.info];
});

checked('commit and rollback', async (db) => {
    const insert = "INSERT INTO mysql2_notes (tag) VALUES ('t')";
    await db.beginTransaction();
    await db.query(insert);
    await db.query('SAVEPOINT a');
    await db.query(insert);
    await db.query('ROLLBACK TO a');
    await db.commit();
    await db.beginTransaction();
    await db.query(insert);
    await db.rollback();
    return value(db, "SELECT COUNT(*) FROM mysql2_notes WHERE tag = 't'");
});

checked('autocommit off', async (db) => {
    await db.query('SET autocommit = 0');
    await db.query("INSERT INTO mysql2_notes (tag) VALUES ('off')");
    await db.rollback();
    await db.query('SET autocommit = 1');
    return value(db, "SELECT COUNT(*) FROM mysql2_notes WHERE tag = 'off'");
});

checked('errors, and warnings', async (db) => {
    const seen = [];
    await db.query("INSERT INTO mysql2_notes (tag, number) VALUES ('e', 1)");
    for (const text of ["INSERT INTO mysql2_notes (tag, number) VALUES ('e', 1)", 'SELEC 1',
        'SELECT nothing FROM mysql2_notes', 'SELECT * FROM mysql2_nowhere']) {
        const { code, errno, sqlState, sqlMessage } = await fails(db.query(text));
        seen.push([code, errno, sqlState, sqlMessage]);
    }
    await db.query("SELECT CAST('1x' AS INT)");
    const [warnings] = await db.query('SHOW WARNINGS');
    return [seen, warnings];
});

checked('an error of a prepared statement, then the same again', async (db) => {
    const seen = [];
    for (const number of [2, 1, 2, 1]) {
        const query = db.execute('SELECT 1 = (SELECT 1 UNION SELECT ?)', [number]);
        seen.push(number === 1 ? (await query)[0].length : (await fails(query)).errno);
    }
    return seen;
});

checked('a procedure with two results', async (db) => {
    await db.query('CREATE PROCEDURE mysql2_both() BEGIN SELECT 1 AS a; SELECT 2 AS b; END');
    const [results] = await db.query('CALL mysql2_both()');
    const [again] = await db.execute('CALL mysql2_both()');
    return [results.slice(0, 2), again.slice(0, 2)];
});

checked('a result is streamed', async (db) => {
    let sum = 0;
    const stream = db.connection.query('SELECT seq FROM seq_1_to_5000').stream();
    for await (const row of stream) {
        sum += row.seq;
    }
    return [sum, await value(db, 'SELECT 1')];
});

checked('LOAD DATA LOCAL', async (db) => {
    await db.query('CREATE TABLE mysql2_loaded (a INT, b VARCHAR(20))');
    const [result] = await db.query({
        sql: "LOAD DATA LOCAL INFILE 'none' INTO TABLE mysql2_loaded",
        infileStreamFactory: () => Readable.from([Buffer.from('1\ta\n2\tb\n')]),
    });
    return [result.affectedRows, await value(db, 'SELECT COUNT(*) FROM mysql2_loaded')];
});

checked('variables of the session and of the user', async (db) => {
    await db.query("SET @own = 'x', SESSION group_concat_max_len = 2222");
    await db.query("SET NAMES latin1");
    return value(db, "SELECT CONCAT_WS(' ', @own, @@group_concat_max_len, @@character_set_client)");
});

checked('changeUser', async (db) => {
    await db.query("SET @own = 'x'");
    await db.changeUser({ user: 'sbtest', password: 'sbtest', database: 'sbtest' });
    return [await value(db, 'SELECT @own'), await value(db, 'SELECT DATABASE()')];
});

checked('reset', async (db) => {
    await db.query("SET @own = 'x', SESSION sql_mode = ''");
    await new Promise((done, failed) => db.connection.reset((failure) =>
        failure ? failed(failure) : done()));
    return value(db, 'SELECT CONCAT_WS(" ", @own, @@sql_mode)');
});

checked('ping', (db) => db.ping().then((found) => String(found)));

checked('KILL QUERY of the id that the driver knows', async (db) => {
    const other = await connect();
    const slow = other.query('SELECT SLEEP(10)').then(([rows]) => rows, (failure) => failure.errno);
    await sleep(300);
    await db.query(`KILL QUERY ${other.threadId}`);
    const found = [await slow, await value(other, 'SELECT 6')];
    other.destroy();
    return found;
});

checked('the id that the driver knows is CONNECTION_ID()', async (db) => {
    equal(db.threadId, await value(db, 'SELECT CONNECTION_ID()'));
});

checked('a time limit of a query', async (db) => {
    const failure = await fails(db.query({ sql: 'SELECT SLEEP(5)', timeout: 300 }));
    return failure.code;
});

checked('a value of 3 MB, prepared and in a text', async (db) => {
    const large = 'x'.repeat(3_000_000);
    equal(large, await executed(db, 'SELECT ?', [large]));
    equal(3_000_000, await value(db, 'SELECT LENGTH(?)', [large]));
});

check('a pool of 30 that 60 tasks use', async () => {
    const pool = mysql.createPool({ ...account, connectionLimit: 30 });
    const work = async (own) => {
        for (let round = 0; round < 3; round++) {
            const number = 10_000 + own * 10 + round;
            const db = await pool.getConnection();
            await db.beginTransaction();
            await db.execute("INSERT INTO mysql2_notes (tag, number) VALUES ('pool', ?)",
                [number]);
            equal(number, await value(db, 'SELECT number FROM mysql2_notes WHERE number = ?',
                [number]));
            await db.commit();
            db.release();
        }
    };
    await Promise.all(Array.from({ length: 60 }, (_, own) => work(own)));
    const [rows] = await pool.query("SELECT COUNT(*) FROM mysql2_notes WHERE tag = 'pool'");
    await pool.end();
    return rows;
});

function idle(name, step, options = {}) {
    starves(name, {
        connect: (smallPort) => connect({ ...options, port: smallPort }),
        step,
        ask: (db) => db.query('SELECT 4'),
        close: (db) => db.end(),
    });
}

idle('a login', async () => undefined);
idle('a query', (db) => db.query('SELECT 1'));
idle('a prepared statement', (db) => db.execute('SELECT ? + 1', [1]));
idle('a transaction', async (db) => {
    await db.beginTransaction();
    await db.query('SELECT COUNT(*) FROM mysql2_notes');
    await db.commit();
});
idle('SET', (db) => db.query("SET NAMES latin1, SESSION group_concat_max_len = 2222"));
idle('SET with an expression', (db) =>
    db.query("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')"));
idle('a user variable', (db) => db.query("SET @own = 'x'"));
idle('an INSERT', (db) => db.query("INSERT INTO mysql2_notes (tag) VALUES ('s')"));
idle('a warning', (db) => db.query("SELECT CAST('1x' AS INT)"));
idle('changeUser', (db) => db.changeUser({ user: 'sbtest', password: 'sbtest' }));
idle('a lock that was given back', async (db) => {
    if (await value(db, "SELECT GET_LOCK(CONCAT('mysql2', 1), 0)")) {
        await db.query("SELECT RELEASE_LOCK('mysql21')");
    }
});
idle('a temporary table that was dropped', async (db) => {
    await db.query('CREATE TEMPORARY TABLE own (a INT)');
    await db.query('DROP TEMPORARY TABLE own');
});
run();
