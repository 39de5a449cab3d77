# SPDX-License-Identifier: Apache-2.0
"""A named actor of Ray as the lease; a process of its own talks to Ray, because Ray ends processes that lose it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.lease import Held

_DRIVER = "serving_proxy.ray_driver"
# Until this process can call the actor: Ray's library takes seconds to start, and so does the actor of a new cluster.
_CONNECT_S = 60.0
# The driver gives up before this process does, which would have to connect again.
_ACTOR_SHARE = 0.8


class _ConnectingError(UnavailableError):
    """The process still connects."""


class RayLease:
    """The lease in an actor of a cluster.

    Parameters
    ----------
    address : str
        `auto`, or that of Ray's head node.
    namespace : str
        That of the replicas.
    limit_s : float [s]
        Longest time of a request, as `request_limit` returns it.
    """

    #: It may be lost while the log is not.
    is_apart = True

    def __init__(self, address: str, namespace: str, limit_s: float) -> None:
        self._address, self._limit_s = address, limit_s
        self._arguments = json.dumps({"address": address, "namespace": namespace, "has_lease": True})
        self._process: subprocess.Popen[bytes] | None = None
        self._connects_until: float | None = None
        self._lock = threading.Lock()
        self._number = 0
        self._stamp = ""

    def read(self) -> Held | None:
        """Return the lease; None if there is none."""
        # There is no lease to lose meanwhile.
        self._stamp, found = self._call("read_lease", _CONNECT_S)
        return self._held(found)

    def take(self, wanted: Held) -> bool:
        """Take the lease as it was read last; return False if it has been renewed or taken since."""
        return self._write(wanted)[0]

    def renew(self, held: Held) -> bool:
        """Write the lease again, if this proxy still has it."""
        written, found = self._write(held)
        if written:
            return True
        if found is None or (found.term, found.holder) != (held.term, held.holder):
            return False
        return self._write(held)[0]

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _write(self, held: Held) -> tuple[bool, Held | None]:
        written, self._stamp, found = self._call("write_lease", 0.0, stamp=self._stamp, held=asdict(held))
        return bool(written), self._held(found)

    def _held(self, found: Any) -> Held | None:
        try:
            return None if found is None else Held(**found)
        except TypeError as error:
            raise UnavailableError(f"{self}: {error}, expected the lease of a proxy of this release") from error

    def _call(self, what: str, connect_s: float, **values: Any) -> Any:
        """Send a request, and return its result; wait so long [s] for a connection that is not there yet."""
        with self._lock:
            try:
                process = self._connected(connect_s)
                self._number += 1
                asked = {"id": self._number, "do": what, "limit_s": _ACTOR_SHARE * self._limit_s, **values}
                assert process.stdin is not None
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                process.stdin.flush()
                answer = self._line(process, self._limit_s)
            except _ConnectingError as error:
                raise UnavailableError(f"{self}: {error}") from error
            except (OSError, ValueError, UnavailableError) as error:
                # The next call must not get the answer to this one.
                self._end()
                raise UnavailableError(f"{self}: {error}, expected a Ray cluster") from error
        if "error" in answer:
            raise UnavailableError(f"{self}: {answer['error']}")
        return answer["result"]

    def _connected(self, wait_s: float) -> subprocess.Popen[bytes]:
        """Return the process once it has reached the actor; raise _ConnectingError if it goes on trying."""
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._connects_until = time.monotonic() + _CONNECT_S
            self._process = self._start()
        if self._connects_until is not None:
            left_s = max(0.0, self._connects_until - time.monotonic())
            if wait_s < left_s and not _answers(self._process, wait_s):
                raise _ConnectingError("connects to the cluster")
            answer = self._line(self._process, left_s)
            if "error" in answer:
                raise UnavailableError(str(answer["error"]))
            self._connects_until = None
        return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", _DRIVER, self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0")},
        )

    def _line(self, process: subprocess.Popen[bytes], limit_s: float) -> Any:
        """Read an answer; there is never more than one, so that waiting for the first byte is enough."""
        if not _answers(process, limit_s):
            raise UnavailableError(f"no answer within {limit_s:.2g} s")
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise UnavailableError("the connection ended")
        return json.loads(line)

    def _end(self) -> None:
        process, self._process, self._connects_until = self._process, None, None
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()
            for channel in (process.stdin, process.stdout):
                if channel is not None:
                    with contextlib.suppress(OSError):
                        channel.close()

    def __str__(self) -> str:
        return f"--lease ray, {self._address}"


def _answers(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Return whether a process has written something, or ended, within a time [s]."""
    assert process.stdout is not None
    # Unlike select.select, it takes descriptors above 1,023, as a proxy of many agents has them.
    waiting = select.poll()
    waiting.register(process.stdout, select.POLLIN)
    return bool(waiting.poll(limit_s * 1000))
