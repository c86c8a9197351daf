// Serves WebSockets that echo their bytes, over the protocols that the arguments name: a port, and
// `1` (HTTP/1.1), `2` (HTTP/2), or `tls` (both); `connect`, if HTTP/2 offers extended CONNECT
// (RFC 8441); then the key and the certificate of `tls`.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';

const [port, version, connect, key, certificate] = process.argv.slice(2);
const settings = { enableConnectProtocol: connect === 'connect' };
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

function plain(request, response) {
  response.end('plain');
}

function upgrade(request, socket) {
  const accept = createHash('sha1')
    .update(request.headers['sec-websocket-key'] + GUID)
    .digest('base64');
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
      `Sec-WebSocket-Accept: ${accept}\r\nX-Via: 1.1\r\n\r\n`,
  );
  socket.pipe(socket);
  socket.on('error', () => {});
}

function stream(stream, headers) {
  stream.on('error', () => {});
  if (headers[':method'] !== 'CONNECT') return;
  if (headers[':protocol'] !== 'websocket') return stream.respond({ ':status': 501 }, { endStream: true });
  stream.respond({ ':status': 200, 'x-via': '2' });
  stream.pipe(stream);
}

function make() {
  if (version === '1') return http.createServer();
  if (version === '2') return http2.createServer({ settings });
  const files = { key: readFileSync(key), cert: readFileSync(certificate) };
  return http2.createSecureServer({ ...files, allowHTTP1: true, settings });
}

const server = make();
server.on('request', (request, response) => {
  if (request.method !== 'CONNECT') plain(request, response);
});
server.on('upgrade', upgrade);
server.on('stream', stream);
// Without it, CONNECT is answered with 405.
server.on('connect', () => {});
server.listen(Number(port), '127.0.0.1');
