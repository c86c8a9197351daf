"""FastCGI application: records each complete request as a line of JSON, and answers with its target."""

import json
import socket
import struct
import sys
import threading

PORT, LOG = int(sys.argv[1]), sys.argv[2]
BEGIN, ABORT, PARAMETERS, INPUT, OUTPUT, END = 1, 2, 4, 5, 6, 3
KEEP = 1


def exactly(stream, length):
    data = stream.read(length)
    if len(data) != length:
        raise EOFError
    return data


def record(kind, request, content):
    return struct.pack(">BBHHBB", 1, kind, request, len(content), 0, 0) + content


def pairs(data):
    values, at = {}, 0

    def length():
        nonlocal at
        size = data[at]
        if size > 127:
            (size,) = struct.unpack_from(">I", data, at)
            at += 4
            return size & 0x7FFFFFFF
        at += 1
        return size

    while at < len(data):
        name_length, value_length = length(), length()
        name = data[at : at + name_length].decode("latin-1")
        at += name_length
        values[name] = data[at : at + value_length].decode("latin-1")
        at += value_length
    return values


def answer(values, body):
    target = values.get("REQUEST_URI", "")
    fields = []
    for name, value in values.items():
        # The web server has decoded the body: its framing may be named twice.
        if name.startswith("HTTP_") and name != "HTTP_TRANSFER_ENCODING":
            fields += [name[5:].replace("_", "-"), value]
    line = {
        # One web server names another method here if it does not know the one of the request.
        "method": values.get("METHOD") or values.get("REQUEST_METHOD", ""),
        "target": target,
        "host": values.get("HTTP_HOST", ""),
        "body": body.hex(),
        "fields": fields,
    }
    with open(LOG, "a") as log:
        log.write(json.dumps(line) + "\n")
    head = f"Status: 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(target)}\r\n\r\n"
    return (head + target).encode("latin-1")


def serve(connection):
    stream = connection.makefile("rb")
    parameters, body, flags = b"", b"", 0
    try:
        while True:
            _, kind, request, length, padding, _ = struct.unpack(">BBHHBB", exactly(stream, 8))
            content = exactly(stream, length)
            exactly(stream, padding)
            if kind == BEGIN:
                parameters, body, flags = b"", b"", content[2]
            elif kind == ABORT:
                return
            elif kind == PARAMETERS:
                parameters += content
            elif kind == INPUT and content:
                body += content
            elif kind == INPUT:
                values = pairs(parameters)
                expected = values.get("CONTENT_LENGTH", "")
                if expected and int(expected) != len(body):
                    return
                output = record(OUTPUT, request, answer(values, body))
                output += record(OUTPUT, request, b"") + record(END, request, bytes(8))
                connection.sendall(output)
                if not flags & KEEP:
                    return
    except (OSError, EOFError):
        pass
    finally:
        connection.close()


listener = socket.create_server(("127.0.0.1", PORT), backlog=1024)
while True:
    client, _ = listener.accept()
    threading.Thread(target=serve, args=(client,), daemon=True).start()
