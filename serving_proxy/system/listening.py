# SPDX-License-Identifier: Apache-2.0
"""Shared by the proxy and the host: the signals that end them, and limits that keep file descriptors for other uses."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

#: Signals that tell a program to end. SIGHUP too, so that a program whose terminal is closed drains first.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Descriptors kept for files, databases, models and processes, however many connections clients open.
RESERVED = 96
#: Connections to a port that serves only health and metrics.
HEALTH_CONNECTIONS = 64
# Largest number of connections accepted at once. If one cannot be accepted, asyncio tries this often, and logs each
# failure.
_AT_ONCE = 8
_BACKLOG = 2048


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its owner, and accepts few connections at once from a long queue."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner, for which they mean more than the end of this server."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self.config.backlog = _AT_ONCE
        await super().startup(sockets)
        for sock in sockets or []:
            sock.listen(_BACKLOG)


def raise_file_limit() -> None:
    """Raise this process's limit of open files to the permitted maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections(wanted: int, servers: int = 1, health_port: bool = False) -> int:
    """Return the number of connections that each server may have, so that `RESERVED` descriptors remain.

    Parameters
    ----------
    wanted : int
        The largest number that is ever needed.
    servers : int
        Number of servers, which share the rest equally.
    health_port : bool
        Whether there is also a port with `HEALTH_CONNECTIONS`.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return wanted
    used = len(os.listdir(Path("/proc/self/fd")))
    left = limit - used - RESERVED - (HEALTH_CONNECTIONS if health_port else 0)
    return min(wanted, max(8, left // servers))
