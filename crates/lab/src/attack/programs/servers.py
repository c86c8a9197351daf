"""Servers of Python: each records each complete request as a line of JSON, and answers with its target."""

import asyncio
import json
import sys

SERVER, PORT, LOG = sys.argv[1], int(sys.argv[2]), sys.argv[3]
IDLE_SECONDS = 60


def write(method, target, host, body, fields):
    record = {"method": method, "target": target, "host": host, "body": body.hex(), "fields": fields}
    with open(LOG, "a") as log:
        log.write(json.dumps(record) + "\n")


def wsgi(environment, start):
    body = environment["wsgi.input"].read()
    length = environment.get("CONTENT_LENGTH")
    if length and int(length) != len(body):
        raise EOFError("the body is incomplete")
    target = environment.get("RAW_URI") or environment["REQUEST_URI"]
    fields = []
    for name, value in environment.items():
        if name.startswith("HTTP_") and name != "HTTP_TRANSFER_ENCODING":
            fields += [name[5:].replace("_", "-"), value]
    write(environment["REQUEST_METHOD"], target, environment.get("HTTP_HOST", ""), body, fields)
    start("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(target)))])
    return [target.encode("latin-1")]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    body, more = b"", True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            return
        body += event.get("body", b"")
        more = event.get("more_body", False)
    target = scope["raw_path"].decode("latin-1")
    if scope["query_string"] and "?" not in target:
        target += "?" + scope["query_string"].decode("latin-1")
    fields, host = [], ""
    for name, value in scope["headers"]:
        fields += [name.decode("latin-1"), value.decode("latin-1")]
        if name == b"host":
            host = value.decode("latin-1")
    write(scope["method"], target, host, body, fields)
    length = str(len(target)).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": target.encode("latin-1")})


def waitress():
    from waitress import serve

    serve(wsgi, host="127.0.0.1", port=PORT, threads=16, channel_timeout=IDLE_SECONDS, ident=None)


def gunicorn():
    from gunicorn.app.base import BaseApplication

    class Application(BaseApplication):
        def load_config(self):
            for name, value in {
                "bind": f"127.0.0.1:{PORT}",
                "worker_class": "gthread",
                "threads": 32,
                "keepalive": IDLE_SECONDS,
                "worker_tmp_dir": "/tmp",
                "control_socket_disable": True,
            }.items():
                if name in self.cfg.settings:
                    self.cfg.set(name, value)

        def load(self):
            return wsgi

    Application().run()


def uvicorn(parser):
    import uvicorn

    uvicorn.run(
        asgi,
        host="127.0.0.1",
        port=PORT,
        http=parser,
        ws="none",
        lifespan="off",
        timeout_keep_alive=IDLE_SECONDS,
        log_level="warning",
        proxy_headers=False,
    )


def hypercorn():
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{PORT}"]
    config.keep_alive_timeout = IDLE_SECONDS
    asyncio.run(serve(asgi, config))


def aiohttp():
    from aiohttp import web

    async def answer(request):
        body = await request.read()
        fields = []
        for name, value in request.raw_headers:
            fields += [name.decode("latin-1"), value.decode("latin-1")]
        target = request.raw_path
        write(request.method, target, request.headers.get("Host", ""), body, fields)
        return web.Response(text=target)

    async def main():
        runner = web.ServerRunner(web.Server(answer, keepalive_timeout=IDLE_SECONDS))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PORT).start()
        await asyncio.Event().wait()

    asyncio.run(main())


def tornado():
    from tornado import httpserver, httputil

    def answer(request):
        fields = [text for field in request.headers.get_all() for text in field]
        write(request.method, request.uri, request.headers.get("Host", ""), request.body, fields)
        target = request.uri.encode("latin-1")
        request.connection.write_headers(
            httputil.ResponseStartLine("HTTP/1.1", 200, "OK"),
            httputil.HTTPHeaders({"Content-Length": str(len(target))}),
            target if request.method != "HEAD" else None,
        )
        request.connection.finish()

    async def main():
        server = httpserver.HTTPServer(answer, idle_connection_timeout=IDLE_SECONDS)
        server.listen(PORT, "127.0.0.1", backlog=1024)
        await asyncio.Event().wait()

    asyncio.run(main())


START = {
    "waitress": waitress,
    "gunicorn": gunicorn,
    "uvicorn-h11": lambda: uvicorn("h11"),
    "uvicorn-httptools": lambda: uvicorn("httptools"),
    "hypercorn": hypercorn,
    "aiohttp": aiohttp,
    "tornado": tornado,
}
START[SERVER]()
