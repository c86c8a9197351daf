// Records each complete request as a line of JSON, and answers with its target.
const http = require('node:http');
const fs = require('node:fs');
const [port, log] = process.argv.slice(2);
const write = (record) => fs.appendFileSync(log, JSON.stringify(record) + '\n');
const server = http.createServer((request, response) => {
  const body = [];
  request.on('data', (data) => body.push(data));
  request.on('end', () => {
    write({
      method: request.method,
      target: request.url,
      host: request.headers.host ?? '',
      body: Buffer.concat(body).toString('hex'),
      fields: request.rawHeaders,
    });
    response.setHeader('Content-Length', Buffer.byteLength(request.url));
    response.end(request.url);
  });
});
server.on('clientError', (error, socket) => {
  if (error.code !== 'ECONNRESET') write({ refused: error.code ?? 'unknown' });
  socket.destroy();
});
server.keepAliveTimeout = 60000;
server.listen(Number(port), '127.0.0.1');
