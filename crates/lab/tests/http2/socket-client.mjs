// Opens a WebSocket over HTTP/2 (RFC 8441), and has the server echo 10 MB; then several, together
// with another request.
import assert from 'node:assert';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';

const [url, ca, via] = process.argv.slice(2);
const LENGTH = 10 * 1024 * 1024;
const bytes = Buffer.alloc(LENGTH);
for (let at = 0; at < LENGTH; at++) bytes[at] = (at * 31 + (at >> 16)) % 251;

const session = http2.connect(url, { ca: readFileSync(ca), checkServerIdentity: () => undefined });
const settings = await new Promise((resolve) => session.once('remoteSettings', resolve));
assert.strictEqual(settings.enableConnectProtocol, true);

function open(path) {
  return new Promise((resolve, reject) => {
    const socket = session.request({
      ':method': 'CONNECT',
      ':protocol': 'websocket',
      ':path': path,
      ':scheme': url.split(':')[0],
      ':authority': 'web.example',
      'sec-websocket-version': '13',
    });
    socket.once('error', reject);
    socket.once('response', (headers) => {
      assert.strictEqual(headers[':status'], 200);
      assert.strictEqual(headers['x-via'], via);
      resolve(socket);
    });
  });
}

async function echo(socket, sent) {
  const received = [];
  let length = 0;
  socket.on('data', (part) => {
    received.push(part);
    length += part.length;
  });
  const ended = new Promise((resolve) => socket.once('end', resolve));
  for (let at = 0; at < sent.length; at += 65536) {
    const part = sent.subarray(at, at + 65536);
    await new Promise((resolve) => socket.write(part, resolve));
  }
  while (length < sent.length) await new Promise((resolve) => socket.once('data', resolve));
  socket.end();
  await ended;
  assert.ok(Buffer.concat(received).equals(sent));
}

await echo(await open('/large'), bytes);
const sockets = await Promise.all([...Array(20).keys()].map((number) => open(`/${number}`)));
const small = bytes.subarray(0, 200000);
const request = session.request({ ':path': '/plain' });
await Promise.all([
  ...sockets.map((socket) => echo(socket, small)),
  new Promise((resolve) => request.on('data', (part) => resolve(assert.strictEqual(String(part), 'plain')))),
]);
session.close();
console.log('done');
