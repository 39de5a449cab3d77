# SPDX-License-Identifier: Apache-2.0
"""Find ports for programs that have to know them before they start, or that keep them over a restart."""

from __future__ import annotations

import random
import socket

# Below the ports that kernels give to connections and to programs that ask for any, and so not taken by them meanwhile.
_FIRST, _LAST = 20_000, 32_000


def free_port() -> int:
    """Return a port of the loopback address that nobody uses."""
    while True:
        port = random.SystemRandom().randint(_FIRST, _LAST)
        with socket.socket() as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
