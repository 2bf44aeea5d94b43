"""A publisher on the loopback: an HTTP server with every fault that a network has."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lossbench.data.download.fetch import Patience

HASTE = Patience(timeout=0.5, tries=3, pause=0.01)


class Server(ThreadingHTTPServer):
    """Serves `bodies`; `faults` are what the next requests meet, one each, before all is well again."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies, self.faults, self.always = {}, [], None
        self.ranges, self.sent = [], []  # of every request: its Range, and how much of the body it was sent
        self.over = threading.Event()

    def address(self, path):
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request, client_address):
        """A client that went away is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, range_ = self.server, self.headers.get("Range")
        self.number = len(server.ranges)
        server.ranges.append(range_)
        server.sent.append(0)
        fault = server.always or (server.faults.pop(0) if server.faults else "")
        body = server.bodies.get(self.path[1:])
        status = fault if isinstance(fault, int) else 200 if body is not None else 404
        if status != 200:
            self.send_error(status)
            return
        if fault == "dripping header":
            while not server.over.wait(0.05):
                self.wfile.write(b"H")
            return
        start = int(range_[6:-1]) if range_ and fault != "no range" else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + (fault == 'odd range')}-{len(body) - 1}/{len(body)}")
        if fault == "login page":
            body, start = b"<html>please log in</html>", 0
        if fault == "wrong bytes":
            body = bytes(len(body))
        if fault == "longer":
            body += b"more"
        rest = body[start:]
        if fault == "chunked cut":
            self.send_header("Transfer-Encoding", "chunked")
        elif fault != "longer":
            self.send_header("Content-Length", str(len(rest)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.send(rest, fault)

    def send(self, rest, fault):
        match fault:
            case ("cut", length):
                self.write(rest[:length])
            case "chunked cut":
                self.write(b"7d0\r\n" + rest[:1000])
            case "hang":
                self.write(rest[: len(rest) // 2])
                self.server.over.wait(20)
            case "drip":
                for at in range(len(rest)):
                    self.write(rest[at : at + 1])
                    if self.server.over.wait(0.05):
                        return
            case "slow":
                for at in range(0, len(rest), 20_000):
                    self.write(rest[at : at + 20_000])
                    if self.server.over.wait(0.03):
                        return
            case _:
                self.write(rest)

    def write(self, part):
        self.server.sent[self.number] += len(part)  # first: the client may be done before `write` returns
        self.wfile.write(part)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def publisher() -> Iterator[Server]:
    """A server that runs until the end of the block."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield running
        finally:
            running.over.set()
            running.shutdown()
            thread.join()
