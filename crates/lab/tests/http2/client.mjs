// Client of the tests with Node: `node client.mjs URL CA`. It prints "done", or fails.

import assert from 'node:assert';
import fs from 'node:fs';
import http2 from 'node:http2';

const [, , url, ca] = process.argv;
const LARGE = 5_000_000;
const session = http2.connect(url, { ca: fs.readFileSync(ca) });
session.on('goaway', (code) => assert.strictEqual(code, 0));

// Sends a request, and returns all of its response.
function ask(head, send) {
  return new Promise((resolve, reject) => {
    const stream = session.request(head, { endStream: !send, waitForTrailers: false });
    const seen = { interim: [], body: '', trailers: {} };
    stream.setEncoding('utf8');
    stream.on('headers', (fields) => seen.interim.push(fields));
    stream.on('response', (fields) => { seen.head = fields; });
    stream.on('trailers', (fields) => { seen.trailers = fields; });
    stream.on('data', (data) => { seen.body += data; });
    stream.on('end', () => resolve(seen));
    stream.on('error', reject);
    if (send) send(stream);
  });
}

const get = (path, more = {}) => ask({ ':path': path, ...more });

const post = (path, body, more = {}) =>
  ask({ ':path': path, ':method': 'POST', ...more }, (stream) => stream.end(body));

assert.strictEqual((await get('/get')).body, '/get');
const head = await get('/head', { ':method': 'HEAD' });
assert.strictEqual(head.head['content-length'], '1234');
assert.strictEqual(head.body, '');

const large = Buffer.alloc(LARGE, 'y');
assert.strictEqual((await post('/upload', large)).body, `${LARGE}`);
const sized = await post('/upload', large, { 'content-length': LARGE });
assert.strictEqual(sized.body, `${LARGE}`);
assert.strictEqual((await get('/large')).body.length, LARGE);

const hints = await get('/hints');
assert.strictEqual(hints.interim[0][':status'], 103);
assert.strictEqual(hints.interim[0].link, '</a.css>; rel=preload');

const cookie = await get('/cookie', { cookie: ['a=1', 'b=2'] });
assert.strictEqual(cookie.body, 'a=1; b=2');

const expect = await ask(
  { ':path': '/upload', ':method': 'POST', expect: '100-continue' },
  (stream) => stream.on('continue', () => stream.end(large)),
);
assert.strictEqual(expect.body, `${LARGE}`);

const trailers = await new Promise((resolve, reject) => {
  const fields = { ':path': '/trailers', ':method': 'POST' };
  const stream = session.request(fields, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'x-md': 'abc' }));
  stream.on('trailers', resolve);
  stream.on('error', reject);
  stream.resume();
  stream.end('body');
});
assert.strictEqual(trailers['x-seen'], 'x-md=abc');

const together = await Promise.all(Array.from({ length: 100 }, () => get('/together')));
assert.ok(together.every((response) => response.body === 'together'));

// The server sends the next event when the one before was received.
const events = await new Promise((resolve, reject) => {
  const stream = session.request({ ':path': '/events' });
  const seen = [];
  stream.setEncoding('utf8');
  stream.on('data', (data) => {
    seen.push(data);
    get('/received').catch(reject);
  });
  stream.on('end', () => resolve(seen));
  stream.on('error', reject);
});
assert.deepStrictEqual(events, ['data: 1\n', 'data: 2\n', 'data: 3\n']);

session.close(() => console.log('done'));
