"""Records each complete request as a line of JSON, and answers with its target."""

import json
import socketserver
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, LOG = int(sys.argv[1]), sys.argv[2]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def exactly(self, length):
        data = self.rfile.read(length)
        if len(data) != length:
            raise ConnectionError("the body is incomplete")
        return data

    def body(self):
        if "Transfer-Encoding" in self.headers:
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.exactly(size)
                self.exactly(2)
            while self.rfile.readline().strip():
                pass
            return data
        return self.exactly(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        try:
            body = self.body()
        except (ConnectionError, ValueError):
            self.close_connection = True
            return
        fields = [text for field in self.headers.items() for text in field]
        record = {
            "method": self.command,
            # The module itself joins slashes at the beginning of a path.
            "target": self.requestline.split(" ")[1],
            "host": self.headers.get("Host", ""),
            "body": body.hex(),
            "fields": fields,
        }
        with open(LOG, "a") as log:
            log.write(json.dumps(record) + "\n")
        target = self.path.encode("latin-1", "replace")
        self.send_response(200)
        self.send_header("Content-Length", str(len(target)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(target)

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "origin", PORT


Server(("127.0.0.1", PORT), Handler).serve_forever()
