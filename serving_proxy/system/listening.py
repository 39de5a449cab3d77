# SPDX-License-Identifier: Apache-2.0
"""What the proxy and the host share: the signals that end them, and sockets that leave some files for all else."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

#: Signals that tell a program to end. SIGHUP as well: what a closed terminal leaves behind is drained, not cut off.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: For files, databases, models and processes that are started, whatever clients do.
RESERVED = 96
#: To a port for health and metrics alone.
HEALTH_CONNECTIONS = 64
# After one that cannot be accepted, asyncio tries as often as this at once, and logs every time.
_AT_ONCE = 8
_BACKLOG = 2048


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its owner, and accepts few connections at once out of a long queue."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner: they mean more than the end of this server."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self.config.backlog = _AT_ONCE
        await super().startup(sockets)
        for one in sockets or []:
            one.listen(_BACKLOG)


def raise_file_limit() -> None:
    """Let this process open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_connections(wanted: int, servers: int = 1, health_port: bool = False) -> int:
    """Return how many connections each of some servers may have, so that `RESERVED` descriptors are left.

    Parameters
    ----------
    wanted : int
        More than these are never needed.
    servers : int
        They share the rest equally.
    health_port : bool
        Whether there is one with `HEALTH_CONNECTIONS` beside them.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return wanted
    used = len(os.listdir(Path("/proc/self/fd")))
    left = limit - used - RESERVED - (HEALTH_CONNECTIONS if health_port else 0)
    return min(wanted, max(8, left // servers))
