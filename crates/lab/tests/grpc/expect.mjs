// A server of Node that decides about a body before it is sent: node expect.mjs PORT

import http2 from 'node:http2';

const server = http2.createServer();

server.on('checkContinue', (request, response) => {
  request.stream.on('error', () => {});
  if (request.url === '/refuse') {
    response.writeHead(403);
    response.end('refused');
    return;
  }
  response.writeContinue();
  request.pipe(response);
});

// Only with this listener, Node looks for the expectation.
server.on('request', (request, response) => response.end('no expectation'));

server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
