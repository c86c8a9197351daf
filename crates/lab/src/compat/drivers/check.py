"""Runs checks in order and prints a verdict of each: a line of four columns."""

import signal
import sys
import threading
import time
import traceback

LIMIT_S = 30
# On a machine that has other work too.
AT_ONCE_S = 2

HOST = sys.argv[1]
PORT = int(sys.argv[2])
# A pool of two server connections.
SMALL_PORT = int(sys.argv[3])


class Late(Exception):
    pass


def check(name):
    """Runs the function that follows. Its result is a value to be compared, or None."""

    def run(body):
        signal.signal(signal.SIGALRM, late)
        signal.alarm(LIMIT_S)
        try:
            value = body()
            line("passed", name, "" if value is None else str(value))
        except Exception as failure:
            place = traceback.extract_tb(failure.__traceback__)[-1].lineno
            line("failed", name, f"{type(failure).__name__}: {failure} (line {place})")
        finally:
            signal.alarm(0)
        return body

    return run


def late(_signal, _frame):
    raise Late(f"no end within {LIMIT_S} s")


def line(verdict, name, words):
    print("verdict", verdict, name, " ".join(words.split()), sep="\t", flush=True)


def equal(expected, found):
    assert expected == found, f"expected {expected!r}, found {found!r}"


def starves(name, connect, step, ask):
    """Three connections take a step and stay idle, on a pool of two; each then asks at once, and so
    does a fourth."""

    @check("idle after " + name)
    def _():
        held = []
        try:
            for number in range(3):
                held.append(connect(SMALL_PORT))
                at_once(f"the step of {number}", lambda: step(held[number]))
            fourth = at_once("the fourth connection", lambda: connect(SMALL_PORT))
            held.append(fourth)
            for number in (3, 0, 1, 2):
                at_once(f"a query of {number}", lambda: ask(held[number]))
        finally:
            for one in held:
                one.close()


def at_once(what, body):
    since = time.monotonic()
    result = body()
    took = time.monotonic() - since
    assert took < AT_ONCE_S, f"{what} took {took:.1f} s"
    return result


def together(bodies):
    """Runs all in threads of their own; raises the first failure."""
    failures = []

    def run(body):
        try:
            body()
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def end():
    print("end", flush=True)
