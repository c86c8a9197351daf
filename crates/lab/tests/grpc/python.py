"""A server and a client of grpcio with messages of plain bytes, for the tests of Evenkeel.

    python.py serve ADDRESS
    python.py client ADDRESS
"""

import sys
import threading
from concurrent import futures

import grpc

SERVICE = "/evenkeel.Echo/"
LARGE = b"0123456789abcdef" * 65536


class Handler(grpc.GenericRpcHandler):
    def service(self, details):
        method = details.method.removeprefix(SERVICE)
        return {
            "Unary": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
            "Metadata": grpc.unary_unary_rpc_method_handler(metadata),
            "Count": grpc.stream_unary_rpc_method_handler(count),
            "Repeat": grpc.unary_stream_rpc_method_handler(repeat),
            "Bidi": grpc.stream_stream_rpc_method_handler(bidi),
            "Fail": grpc.unary_unary_rpc_method_handler(fail),
            "Wait": grpc.unary_unary_rpc_method_handler(wait),
        }.get(method)


def metadata(request, context):
    context.set_trailing_metadata((("x-tail", "tail"), ("x-tail-bin", b"\x01\x00\xfe")))
    return request


def count(requests, context):
    lengths = [len(request) for request in requests]
    return f"{len(lengths)} {sum(lengths)}".encode()


def repeat(request, context):
    for number in range(1000):
        yield str(number).encode()


def bidi(requests, context):
    yield from requests


def fail(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing: 100 %")


def wait(request, context):
    ended = threading.Event()
    context.add_callback(ended.set)
    ended.wait(30)
    return b""


def serve(address):
    options = [("grpc.max_receive_message_length", 16 << 20), ("grpc.so_reuseport", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(128), [Handler()], options=options)
    server.add_insecure_port(address)
    server.start()
    print("ready", flush=True)
    server.wait_for_termination()


def client(address):
    options = [("grpc.max_receive_message_length", 16 << 20)]
    with grpc.insecure_channel(address, options) as channel:
        call = channel.unary_unary(SERVICE + "Unary")
        for number in range(100):
            assert call(str(number).encode(), timeout=30) == str(number).encode()
        assert call(LARGE, timeout=30) == LARGE
        _, ended = channel.unary_unary(SERVICE + "Metadata").with_call(b"x", timeout=30)
        assert dict(ended.trailing_metadata())["x-tail-bin"] == b"\x01\x00\xfe"
        messages = (b"x" * 1000 for _ in range(1000))
        counted = channel.stream_unary(SERVICE + "Count")(messages, timeout=30)
        assert counted == b"1000 1000000", counted
        repeated = list(channel.unary_stream(SERVICE + "Repeat")(b"go", timeout=30))
        assert repeated == [str(number).encode() for number in range(1000)]
        bidirectional(channel)
        fails(channel, "Fail", grpc.StatusCode.NOT_FOUND, "no such thing: 100 %")
        fails(channel, "Missing", grpc.StatusCode.UNIMPLEMENTED)
        fails(channel, "Wait", grpc.StatusCode.DEADLINE_EXCEEDED, timeout=0.3)
        with futures.ThreadPoolExecutor(50) as pool:
            list(pool.map(lambda _: bidirectional(channel), range(50)))
    print("done")


def bidirectional(channel):
    """Each message is answered before the next one is sent."""
    may_send = threading.Semaphore(1)

    def messages():
        for number in range(50):
            may_send.acquire()
            yield str(number).encode()

    answers = channel.stream_stream(SERVICE + "Bidi")(messages(), timeout=30)
    for number, answer in enumerate(answers):
        assert answer == str(number).encode()
        may_send.release()
    assert number == 49


def fails(channel, method, code, details=None, timeout=30):
    try:
        channel.unary_unary(SERVICE + method)(b"x", timeout=timeout)
    except grpc.RpcError as error:
        assert error.code() == code, error
        assert details is None or error.details() == details, error
    else:
        raise AssertionError(method)


{"serve": serve, "client": client}[sys.argv[1]](sys.argv[2])
