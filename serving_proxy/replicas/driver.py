# SPDX-License-Identifier: Apache-2.0
"""The process that talks to the engine for the proxy.

Ray ends a process that loses its cluster, and takes over its signals, so it is never in the process of the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from serving_proxy.errors import InvalidError, LateError, ProxyError, UnavailableError

log = logging.getLogger("serving_proxy.replicas")

_CALL_S = 30.0
_CONNECT_S = 60.0
_MOST_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 2048


class Driver:
    """Starts the process when it is needed, and again after it has ended.

    Parameters
    ----------
    module : str
        What the process runs; it reads requests and writes answers as lines of JSON.
    arguments : mapping
        Its arguments.
    """

    def __init__(self, module: str, arguments: Mapping[str, Any]) -> None:
        self._module = module
        self._arguments = dict(arguments)
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._tail = b""
        self._reader: asyncio.Task[None] | None = None
        self._number = 0
        self._has_said = False

    @property
    def place(self) -> str:
        """Return the option that names the engine, for messages."""
        return f"--ray-address {self._arguments.get('address', '')}"

    async def call(self, what: str, **values: Any) -> Any:
        """Send a request, and return its result.

        Raises
        ------
        UnavailableError, LateError
            The engine cannot be reached, or does not answer.
        InvalidError
            It refuses the request.
        """
        async with self._lock:
            process = await self._running()
            self._number += 1
            asked = {"id": self._number, "do": what, **values}
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                await process.stdin.drain()
                answer = await self._line(process, _CALL_S)
            except BaseException as error:
                # Whoever asks next must not get the answer to this request.
                await self._end()
                if isinstance(error, OSError) and not isinstance(error, ProxyError):
                    raise UnavailableError(f"{self.place}: the connection ended, {error}") from error
                raise
        if "error" in answer:
            raise UnavailableError(str(answer["error"]))
        return answer.get("result")

    async def close(self) -> None:
        """End the process; replicas go on."""
        async with self._lock:
            await self._end()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self._end()
        if not self._has_said:
            # Ray itself is silent for 12 seconds if nobody answers there.
            log.info("%s: connecting to the Ray cluster, for at most %g s", self.place, _CONNECT_S)
            self._has_said = True
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                json.dumps(self._arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "RAY_USAGE_STATS_ENABLED": os.environ.get("RAY_USAGE_STATS_ENABLED", "0")},
                limit=_MOST_BYTES,
            )
        except OSError as error:
            raise UnavailableError(f"{self.place}: its driver cannot be started, {error}") from error
        self._reader = asyncio.create_task(self._read_tail(process))
        try:
            answer = await self._line(process, _CONNECT_S)
        except BaseException:
            await self._end()
            raise
        if "error" in answer:
            await self._end()
            kind = InvalidError if answer.get("invalid") else UnavailableError
            raise kind(str(answer["error"]))
        self._has_said = False
        return process

    async def _line(self, process: asyncio.subprocess.Process, limit_s: float) -> dict[str, Any]:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                line = await process.stdout.readline()
        except TimeoutError as error:
            raise LateError(f"{self.place}: no answer within {limit_s:g} s, expected a Ray cluster") from error
        except (OSError, ValueError) as error:
            raise UnavailableError(f"{self.place}: the answer cannot be read, {error}") from error
        try:
            found = json.loads(line)
        except ValueError as error:
            said = self._tail.decode(errors="replace").strip().splitlines()
            last = f", '{said[-1][:300]}'" if said else ""
            raise UnavailableError(f"{self.place}: the connection ended{last}, expected a Ray cluster") from error
        return found if isinstance(found, dict) else {}

    async def _read_tail(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while chunk := await process.stderr.read(65536):
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        self._tail = b""
