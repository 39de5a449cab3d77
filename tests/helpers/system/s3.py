# SPDX-License-Identifier: Apache-2.0
"""A server of S3 on this machine, and a connection to it that can break."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from load_tests.ports import free_port
from serving_proxy.artifacts import stores

USER, SECRET = "recprocessor-test", "a secret of the test"
_START_S = 60.0


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Run moto's server, which keeps objects in memory; yield its port.

    Parameters
    ----------
    folder : Path
        Where its log is written.
    """
    port = free_port()
    with (folder / "s3.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait()


def make_bucket(port: int, name: str) -> None:
    """Make a bucket."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{name}", method="PUT")
    urllib.request.urlopen(request).read()


@contextlib.contextmanager
def credentials_checked(port: int) -> Iterator[None]:
    """Let a server refuse requests, because it knows no users."""

    def let_pass(requests: str) -> None:
        url, kind = f"http://127.0.0.1:{port}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, requests.encode(), kind)).read()

    let_pass("0")
    try:
        yield
    finally:
        let_pass("inf")


@contextlib.contextmanager
def s3_environment(port: int, secret: str = SECRET) -> Iterator[None]:
    """Set the variables with which clients find a server on this machine."""
    values = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    stores.forget_stores()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        stores.forget_stores()


class Forwarder:
    """Forwards connections to a port, counts what comes back, and can break.

    Attributes
    ----------
    port : int
    received : int [byte]
        What the server has sent.
    limit : int or None [byte]
        After so many bytes from the server, all connections break and new ones are closed at once.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received = 0
        self.limit: int | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def broken(self) -> bool:
        return self.limit is not None and self.received >= self.limit

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.broken:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if counts:
                    with self._lock:
                        if self.broken:
                            break
                        self.received += len(data)
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
