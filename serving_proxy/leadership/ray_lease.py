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
from dataclasses import asdict
from typing import Any

from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.lease import Held

_DRIVER = "serving_proxy.ray_driver"
_CALL_S, _CONNECT_S = 5.0, 60.0


class RayLease:
    """The lease in an actor of a cluster.

    Parameters
    ----------
    address : str
        `auto`, or that of Ray's head node.
    namespace : str
        That of the replicas.
    """

    #: It may be lost while the log is not.
    is_apart = True

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._arguments = json.dumps({"address": address, "namespace": namespace})
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._number = 0
        self._stamp = ""

    def read(self) -> Held | None:
        """Return the lease; None if there is none."""
        self._stamp, found = self._call("read_lease")
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
        written, self._stamp, found = self._call("write_lease", stamp=self._stamp, held=asdict(held))
        return bool(written), self._held(found)

    def _held(self, found: Any) -> Held | None:
        try:
            return None if found is None else Held(**found)
        except TypeError as error:
            raise UnavailableError(f"{self}: {error}, expected the lease of a proxy of this release") from error

    def _call(self, what: str, **values: Any) -> Any:
        with self._lock:
            try:
                process = self._running()
                self._number += 1
                assert process.stdin is not None
                process.stdin.write(json.dumps({"id": self._number, "do": what, **values}).encode() + b"\n")
                process.stdin.flush()
                answer = self._line(process, _CALL_S)
            except (OSError, ValueError, UnavailableError) as error:
                # The next call must not get the answer to this one.
                self._end()
                raise UnavailableError(f"{self}: {error}, expected a Ray cluster") from error
        if "error" in answer:
            raise UnavailableError(f"{self}: {answer['error']}")
        return answer["result"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", _DRIVER, self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0")},
        )
        answer = self._line(self._process, _CONNECT_S)
        if "error" in answer:
            raise UnavailableError(str(answer["error"]))
        return self._process

    def _line(self, process: subprocess.Popen[bytes], limit_s: float) -> Any:
        """Read an answer; there is never more than one, so that waiting for the first byte is enough."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], limit_s)
        if not ready:
            raise UnavailableError(f"no answer within {limit_s:g} s")
        line = process.stdout.readline()
        if not line:
            raise UnavailableError("the connection ended")
        return json.loads(line)

    def _end(self) -> None:
        process, self._process = self._process, None
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
