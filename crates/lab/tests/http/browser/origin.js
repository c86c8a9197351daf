// Serves a page that uses what browsers need, and writes the page's own report to a file.
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const [port, page, report] = process.argv.slice(2);

const sum = (bytes) => bytes.reduce((total, byte) => (total * 31 + byte) % 65521, 7);
const picture = (number) =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${20 + number}" height="20">` +
  `<rect width="100%" height="100%" fill="hsl(${number * 18} 70% 50%)"/></svg>`;

// Requests without a complete response, with the bytes received.
const unfinished = new Set();

const routes = {
  '/unfinished'(request, response) {
    response.end(JSON.stringify([...unfinished]));
  },
  '/'(request, response) {
    response.setHeader('Content-Type', 'text/html; charset=utf-8');
    response.end(fs.readFileSync(page));
  },
  '/picture'(request, response, url) {
    response.setHeader('Content-Type', 'image/svg+xml');
    response.setHeader('Cache-Control', 'no-store');
    const text = picture(Number(url.searchParams.get('number')));
    response.setHeader('Content-Length', text.length);
    response.end(text);
  },
  '/upload'(request, response) {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const bytes = Buffer.concat(parts);
      response.end(JSON.stringify({ length: bytes.length, sum: sum(bytes) }));
    });
  },
  '/download'(request, response) {
    // Without a length: chunks.
    for (let part = 0; part < 80; part++) response.write(Buffer.alloc(65536, part));
    response.end();
  },
  '/events'(request, response) {
    response.setHeader('Content-Type', 'text/event-stream');
    let number = 0;
    const timer = setInterval(() => response.write(`data: ${number++}\n\n`), 50);
    request.socket.on('close', () => clearInterval(timer));
  },
  '/report'(request, response) {
    let text = '';
    request.on('data', (part) => (text += part));
    request.on('end', () => {
      response.end();
      fs.writeFileSync(report + '.part', text);
      fs.renameSync(report + '.part', report);
    });
  },
};

const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://a');
  const entry = { path: url.pathname, received: 0, length: request.headers['content-length'] };
  unfinished.add(entry);
  request.on('data', (part) => (entry.received += part.length));
  response.on('close', () => unfinished.delete(entry));
  const route = routes[url.pathname];
  if (route) return route(request, response, url);
  response.statusCode = 404;
  response.end();
});

// Returns the first frame of a WebSocket, unmasked, or null if it is not complete (RFC 6455 §5.2).
function frame(bytes) {
  if (bytes.length < 6) return null;
  let length = bytes[1] & 127;
  let at = 2;
  if (length === 126) [length, at] = [bytes.readUInt16BE(2), 4];
  else if (length === 127) {
    if (bytes.length < 10) return null;
    [length, at] = [Number(bytes.readBigUInt64BE(2)), 10];
  }
  if (bytes.length < at + 4 + length) return null;
  const mask = bytes.subarray(at, at + 4);
  const data = Buffer.from(bytes.subarray(at + 4, at + 4 + length)).map((byte, i) => byte ^ mask[i % 4]);
  return { first: bytes[0], data, rest: bytes.subarray(at + 4 + length) };
}

function head(first, length) {
  if (length < 126) return Buffer.from([first, length]);
  const bytes = Buffer.alloc(10);
  bytes.writeUInt8(first, 0);
  bytes.writeUInt8(127, 1);
  bytes.writeBigUInt64BE(BigInt(length), 2);
  return bytes;
}

server.on('upgrade', (request, socket) => {
  const key = request.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
  const accept = crypto.createHash('sha1').update(key).digest('base64');
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
      `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  let waiting = Buffer.alloc(0);
  socket.on('data', (bytes) => {
    waiting = Buffer.concat([waiting, bytes]);
    for (let next; (next = frame(waiting)); waiting = next.rest) {
      socket.write(Buffer.concat([head(next.first, next.data.length), next.data]));
      if ((next.first & 15) === 8) return socket.end();
    }
  });
  socket.on('error', () => {});
});

server.listen(Number(port), '127.0.0.1');
