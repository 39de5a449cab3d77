# SPDX-License-Identifier: Apache-2.0
"""gRPC connections: pings of clients, detection of clients that are gone, and the age of connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import grpc
import pytest

from helpers.hosts.served_hosts import ServedHost

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1


class Connection:
    """A connection of frames of HTTP/2, without a call."""

    def __init__(self, host: ServedHost) -> None:
        name, _, port = host.grpc.rpartition(":")
        self._socket = socket.create_connection((name, int(port)), timeout=60)
        self._socket.sendall(PREFACE + _frame(SETTINGS, b"", stream=0))
        self._pending = b""

    def ping(self) -> None:
        self._socket.sendall(_frame(PING, b"abcdefgh", stream=0))

    def frames(self, seconds: float, *, acknowledge: bool = True) -> Iterator[tuple[int, int]]:
        """Yield kind and flags of what comes, until the time is over or the other side closes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                piece = self._socket.recv(65536)
            except TimeoutError:
                return
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise EOFError
            self._pending += piece
            while len(self._pending) >= 9:
                size = int.from_bytes(self._pending[:3], "big")
                if len(self._pending) < 9 + size:
                    break
                kind, flags = self._pending[3], self._pending[4]
                payload = self._pending[9 : 9 + size]
                self._pending = self._pending[9 + size :]
                if acknowledge and kind in (SETTINGS, PING) and not flags & ACK:
                    answer = payload if kind == PING else b""
                    self._socket.sendall(_frame(kind, answer, stream=0, flags=ACK))
                yield kind, flags

    def close(self) -> None:
        self._socket.close()


def _frame(kind: int, payload: bytes, stream: int, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _pings_until_told_off(host: ServedHost, every: float, number: int) -> tuple[int, bool]:
    """Return how many pings were answered, and whether the host closed the connection."""
    with contextlib.closing(Connection(host)) as connection:
        answered = 0
        try:
            for ping in range(1, number + 1):
                connection.ping()
                # On a busy machine, what follows the last one comes late.
                for kind, flags in connection.frames(every if ping < number else 60.0):
                    answered += kind == PING and flags & ACK
                    if kind == GOAWAY:
                        return answered, True
                    if answered == number:
                        return answered, False
        except EOFError:
            return answered, True
    return answered, False


def test_client_may_ping_without_a_call(start_host, served_models) -> None:
    with start_host({"ranking": served_models["ranking"]}, ("--grpc-min-ping-seconds", "0.2")) as host:
        assert _pings_until_told_off(host, every=0.4, number=8) == (8, False)


def test_a_client_that_pings_too_often_is_disconnected(host: ServedHost) -> None:
    answered, told_off = _pings_until_told_off(host, every=0.1, number=8)
    assert told_off
    assert answered >= 2


def test_client_that_vanishes_without_a_call_is_noticed(start_host, served_models) -> None:
    arguments = ("--grpc-keepalive-seconds", "1", "--grpc-keepalive-timeout-seconds", "1")
    with start_host({"ranking": served_models["ranking"]}, arguments) as host:
        # On a busy machine this client may be taken for one that is gone.
        assert any(_answers_two_pings(host) for _ in range(10))
        with contextlib.closing(Connection(host)) as gone, pytest.raises(EOFError):
            for _ in gone.frames(60, acknowledge=False):
                pass


def _answers_two_pings(host: ServedHost) -> bool:
    """Return whether the host keeps the connection of a client that answers two of its pings."""
    with contextlib.closing(Connection(host)) as there, contextlib.suppress(EOFError):
        pings = 0
        for kind, flags in there.frames(60):
            pings += kind == PING and not flags & ACK
            if pings == 2:
                return True
    return False


def test_old_connections_are_closed_without_losing_calls(start_host, served_models) -> None:
    """No call is lost when clients reconnect."""
    with start_host({"ranking": served_models["ranking"]}, ("--grpc-max-connection-age-seconds", "1")) as host:
        began = time.monotonic()
        with contextlib.closing(Connection(host)) as connection, contextlib.suppress(EOFError):
            assert GOAWAY in (kind for kind, _ in connection.frames(60))
            assert time.monotonic() - began > 0.5
        with grpc.insecure_channel(host.grpc) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            until = time.monotonic() + 3
            while time.monotonic() < until:
                assert check(b"", timeout=60) == b"\x08\x01"


def test_idle_connection_is_closed(start_host, served_models) -> None:
    arguments = ("--grpc-max-connection-idle-seconds", "1")
    with (
        start_host({"ranking": served_models["ranking"]}, arguments) as host,
        contextlib.closing(Connection(host)) as connection,
        contextlib.suppress(EOFError),
    ):
        assert GOAWAY in (kind for kind, _ in connection.frames(60))


@pytest.mark.parametrize(
    "path", ["/tensorflow.serving.PredictionService/Predict", "/inference.GRPCInferenceService/ModelInfer"]
)
def test_call_without_a_message_is_refused(channel: grpc.Channel, path: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary(path)(iter(()), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "request: none came, expected one message"


def test_invalid_priorities_are_refused(channel: grpc.Channel) -> None:
    call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=60, metadata=[("x-priority", "1_000")])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "x-priority: '1_000', expected an integer of 32 bits"
