# SPDX-License-Identifier: Apache-2.0
"""Ports that are ours before anything listens there."""

from __future__ import annotations

import socket

from processor import Host

# A client that takes nothing of its answer for so long is cut off.
_UNREAD_MS = 60_000


def reserve(host: Host, address: str, port: int) -> socket.socket:
    """Bind a port that hosts of one state directory may share, and claim it for ours.

    The kernel hands no connection to a socket that does not listen: a host that is loading its models reserves its
    ports, finds out at once if it cannot have them, and leaves clients to the hosts that can answer.

    Raises
    ------
    OSError
        Another program has the port.
    AlreadyExistsError
        Hosts of another state directory have it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off: else the second part of an answer waits until the
    # client acknowledges the first, which takes some 40 ms.
    reserved = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Several processes share one port.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS)
        reserved.bind((address, port))
        host.claim_port(address, reserved.getsockname()[1])
    except BaseException:
        reserved.close()
        raise
    reserved.setblocking(False)
    return reserved
