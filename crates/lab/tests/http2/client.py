"""Client of the tests with Python: `client.py URL CA`. It prints "done", or fails.

httpx asks as applications do; the package h2 sends trailers, and receives interim responses.
"""

import asyncio
import socket
import ssl
import sys
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import h2.settings
import httpx

URL, CA = sys.argv[1:]
LARGE = 5_000_000


async def ask(client, method, path, **more):
    response = await client.request(method, URL + path, **more)
    assert (response.http_version, response.status_code) == ("HTTP/2", 200), response
    return response


async def in_parts(body):
    for start in range(0, len(body), 70_000):
        yield body[start : start + 70_000]


async def applications():
    context = ssl.create_default_context(cafile=CA)
    async with httpx.AsyncClient(http1=False, http2=True, verify=context, timeout=60) as client:
        assert (await ask(client, "GET", "/get")).text == "/get"
        head = await ask(client, "HEAD", "/head")
        assert (head.headers["content-length"], head.text) == ("1234", "")
        body = b"y" * LARGE
        for content in body, in_parts(body):
            assert (await ask(client, "POST", "/upload", content=content)).text == str(LARGE)
        assert len((await ask(client, "GET", "/large")).content) == LARGE
        cookies = [("cookie", "a=1"), ("cookie", "b=2")]
        assert (await ask(client, "GET", "/cookie", headers=cookies)).text == "a=1; b=2"
        together = [ask(client, "GET", "/together") for _ in range(100)]
        assert all(it.text == "together" for it in await asyncio.gather(*together))
        # The server sends the next event when the one before was received.
        async with client.stream("GET", URL + "/events") as response:
            events = []
            async for line in response.aiter_lines():
                if line:
                    events.append(line)
                    await ask(client, "GET", "/received")
        assert events == ["data: 1", "data: 2", "data: 3"], events


def connected():
    url = urlsplit(URL)
    plain = socket.create_connection((url.hostname, url.port), timeout=60)
    if url.scheme == "http":
        return plain
    context = ssl.create_default_context(cafile=CA)
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname=url.hostname)


def frames(path, trailers):
    """Sends one request with a short body, and returns the events of its response."""
    with connected() as stream:
        config = h2.config.H2Configuration(header_encoding="utf-8")
        connection = h2.connection.H2Connection(config)
        connection.initiate_connection()
        url = urlsplit(URL)
        head = [
            (":method", "POST"),
            (":scheme", url.scheme),
            (":authority", url.netloc),
            (":path", path),
        ]
        connection.send_headers(1, head)
        connection.send_data(1, b"body", pad_length=5)
        connection.send_headers(1, trailers, end_stream=True)
        seen = []
        while not any(isinstance(event, h2.events.StreamEnded) for event in seen):
            stream.sendall(connection.data_to_send())
            data = stream.recv(65_536)
            assert data, seen
            seen += connection.receive_data(data)
        return seen


def web_socket():
    """Opens a WebSocket (RFC 8441), and has its bytes echoed until both sides have ended."""
    url = urlsplit(URL)
    connection = h2.connection.H2Connection(
        h2.config.H2Configuration(header_encoding="utf-8")
    )
    with connected() as stream:
        connection.initiate_connection()
        sent, received, is_over = b"z" * LARGE, 0, False
        at, is_open = 0, False
        while not is_over:
            stream.sendall(connection.data_to_send())
            data = stream.recv(65_536)
            assert data, received
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RemoteSettingsChanged):
                    code = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
                    assert event.changed_settings[code].new_value == 1
                    head = [
                        (":method", "CONNECT"),
                        (":protocol", "websocket"),
                        (":scheme", url.scheme),
                        (":authority", url.netloc),
                        (":path", "/socket"),
                        ("sec-websocket-version", "13"),
                    ]
                    connection.send_headers(1, head)
                elif isinstance(event, h2.events.ResponseReceived):
                    assert dict(event.headers)[":status"] == "200", event
                    is_open = True
                elif isinstance(event, h2.events.DataReceived):
                    received += len(event.data)
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, h2.events.StreamEnded):
                    is_over = True
            while is_open and at < LARGE:
                room = min(
                    connection.local_flow_control_window(1), connection.max_outbound_frame_size
                )
                if room == 0:
                    break
                connection.send_data(1, sent[at : at + room])
                at += room
            if at >= LARGE and is_open:
                connection.end_stream(1)
                is_open = False
        assert received == LARGE, received


def of(kind, events):
    (event,) = (event for event in events if isinstance(event, kind))
    return dict(event.headers)


asyncio.run(applications())
web_socket()
answer = frames("/trailers", [("x-md", "abc")])
assert of(h2.events.TrailersReceived, answer) == {"x-seen": "x-md=abc"}, answer
answer = frames("/hints", [("x-md", "abc")])
hints = of(h2.events.InformationalResponseReceived, answer)
assert (hints[":status"], hints["link"]) == ("103", "</a.css>; rel=preload"), hints
assert of(h2.events.ResponseReceived, answer)[":status"] == "200", answer
print("done")
