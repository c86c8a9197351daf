// A server of Node: node server.mjs PORT

import http2 from 'node:http2';

const server = http2.createServer();
let requests = 0;

server.on('stream', (stream, fields) => {
  stream.on('error', () => {});
  const path = fields[':path'];
  const parts = [];
  stream.on('data', (part) => parts.push(part));
  stream.on('end', () => {
    if (stream.destroyed) return;
    requests += 1;
    if (path === '/hints') stream.additionalHeaders({ ':status': 103, link: '</a.css>' });
    stream.respond({ ':status': 200, 'x-method': fields[':method'] }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers({ 'x-sum': '7' }));
    stream.end(Buffer.concat(parts));
    // The end of the connection after its streams.
    if (requests % 50 === 0) stream.session.goaway(0);
  });
});

server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
