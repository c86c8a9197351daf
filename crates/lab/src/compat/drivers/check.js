// Runs checks in order and prints a verdict of each: a line of four columns.

const LIMIT_MS = 30_000;
// On a machine that has other work too.
const AT_ONCE_MS = 2_000;

const host = process.argv[2];
const port = Number(process.argv[3]);
// A pool of two server connections.
const smallPort = Number(process.argv[4]);

const checks = [];

// Adds a check. Its result is a value to be compared, or undefined.
function check(name, body) {
    checks.push([name, body]);
}

async function run() {
    for (const [name, body] of checks) {
        try {
            const value = await limited(body(), LIMIT_MS, 'the check');
            line('passed', name, value === undefined ? '' : JSON.stringify(value));
        } catch (failure) {
            line('failed', name, String(failure && failure.stack || failure).slice(0, 600));
        }
    }
    console.log('end');
    process.exit(0);
}

function line(verdict, name, words) {
    console.log(['verdict', verdict, name, words.replace(/\s+/g, ' ').trim()].join('\t'));
}

function limited(promise, limit, what) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`${what} took ${limit} ms`)), limit);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function equal(expected, found) {
    const [one, other] = [expected, found].map((value) => JSON.stringify(value));
    if (one !== other) {
        throw new Error(`expected ${one}, found ${other}`);
    }
}

async function fails(promise) {
    try {
        await promise;
    } catch (failure) {
        return failure;
    }
    throw new Error('no error');
}

// Three connections take a step and stay idle, on a pool of two; each then asks at once, and so does
// a fourth.
function starves(name, { connect, step, ask, close }) {
    check('idle after ' + name, async () => {
        const held = [];
        const open = async (what) => {
            held.push(await limited(connect(smallPort), AT_ONCE_MS, what));
        };
        try {
            for (let number = 0; number < 3; number++) {
                await open(`connection ${number}`);
                await limited(step(held[number]), AT_ONCE_MS, `the step of ${number}`);
            }
            await open('the fourth connection');
            for (const number of [3, 0, 1, 2]) {
                await limited(ask(held[number]), AT_ONCE_MS, `a query of ${number}`);
            }
        } finally {
            await Promise.all(held.map((one) => close(one).catch(() => undefined)));
        }
    });
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A failure that no check waits for, for example of a connection that was given up.
process.on('unhandledRejection', (failure) => console.error('unhandled:', failure));
process.on('uncaughtException', (failure) => console.error('uncaught:', failure));

module.exports = { host, port, check, run, equal, fails, starves, sleep };
