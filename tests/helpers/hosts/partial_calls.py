# SPDX-License-Identifier: Apache-2.0
"""Make gRPC calls whose request is never complete, which no client library can do: HTTP/2 by hand."""

from __future__ import annotations

import socket
import struct
import threading

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_ACK, _END_HEADERS = 1, 4
_INITIAL_WINDOW = 65535
_FRAME = 16384


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _header(name: str, value: str) -> bytes:
    """Encode a header without index and without Huffman code."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


class PartialCall:
    """Announce a request of `size` bytes and send `sent` of them, within the server's flow control.

    Attributes
    ----------
    done : threading.Event
        Set when everything has been sent, or the server has ended the call or the connection.
    """

    def __init__(self, address: str, path: str, size: int, sent: int) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._windows = {0: _INITIAL_WINDOW, 1: _INITIAL_WINDOW}
        self._stream_start = _INITIAL_WINDOW
        self._changed = threading.Condition()
        self._ended = False
        self.done = threading.Event()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", address)]
        headers += [("content-type", "application/grpc"), ("te", "trailers")]
        block = b"".join(_header(name, value) for name, value in headers)
        self._send(_PREFACE + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, _END_HEADERS, 1, block))
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._write, args=(struct.pack(">BI", 0, size), sent), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Close the connection."""
        self._end()
        self._socket.close()

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self.done.set()

    def _take(self, most: int) -> int:
        """Wait for room in both windows; return its size, 0 at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or min(self._windows.values()) > 0)
            if self._ended:
                return 0
            room = min(most, *self._windows.values())
            for stream in self._windows:
                self._windows[stream] -= room
            return room

    def _write(self, head: bytes, sent: int) -> None:
        left = sent
        try:
            self._take(len(head))
            self._send(_frame(_DATA, 0, 1, head))
            while left > 0:
                room = self._take(min(left, _FRAME))
                if room == 0:
                    return
                self._send(_frame(_DATA, 0, 1, b"\0" * room))
                left -= room
        except OSError:
            self._end()
        self.done.set()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data

    def _read(self) -> None:
        try:
            while True:
                head = self._exactly(9)
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big")
                payload = self._exactly(size)
                if kind == _SETTINGS and not flags & _ACK:
                    self._take_settings(payload)
                    self._send(_frame(_SETTINGS, _ACK, 0, b""))
                elif kind == _PING and not flags & _ACK:
                    self._send(_frame(_PING, _ACK, 0, payload))
                elif kind == _WINDOW_UPDATE:
                    with self._changed:
                        if stream in self._windows:
                            self._windows[stream] += int.from_bytes(payload, "big")
                        self._changed.notify_all()
                elif stream == 1:
                    # A response although the request is not complete, or a reset.
                    self._end()
        except OSError:
            self._end()

    def _take_settings(self, payload: bytes) -> None:
        for i in range(0, len(payload), 6):
            name, value = struct.unpack(">HI", payload[i : i + 6])
            if name == 4:
                with self._changed:
                    self._windows[1] += value - self._stream_start
                    self._stream_start = value
                    self._changed.notify_all()
