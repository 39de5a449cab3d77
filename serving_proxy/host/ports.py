# SPDX-License-Identifier: Apache-2.0
"""Reserve ports before anything listens there."""

from __future__ import annotations

import socket

from processor import Host

# A connection whose client acknowledges no data for this time is closed.
_UNREAD_MS = 60_000


def reserve(host: Host, address: str, port: int) -> socket.socket:
    """Bind a port that hosts of one state directory may share, and claim it for this state directory.

    The kernel hands no connection to a socket that does not listen. So a host that is still loading its models can
    reserve its ports, notices at once if it cannot have them, and leaves clients to the hosts that are ready.

    Raises
    ------
    OSError
        Another program has the port.
    AlreadyExistsError
        Hosts of another state directory have it.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # If the protocol is named, asyncio turns Nagle's algorithm off. Otherwise the second part of a response would wait
    # until the client acknowledges the first, which takes some 40 ms.
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
