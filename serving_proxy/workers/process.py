# SPDX-License-Identifier: Apache-2.0
"""Runs programs that work for the proxy, in processes of their own, with progress and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from serving_proxy.errors import CancelledError, ExhaustedError, PreconditionError, ProxyError

_GRACE_S = 15.0
_MOST_BYTES = 4096
# Of an operator, or of a kernel without memory.
_FROM_OUTSIDE = {signal.SIGTERM, signal.SIGINT, signal.SIGKILL}

Told = Callable[[str, int, int | None, str], None]
"""Step, done, total, unit."""


async def run_worker(module: str, asked: Mapping[str, Any], what: str, told: Told) -> Mapping[str, Any]:
    """Run a module, which reads what is asked as JSON and tells steps, an error or its result as lines of JSON.

    Cancelling the task ends the process, which leaves nothing half-written behind.

    Parameters
    ----------
    module : str
    asked : mapping
    what : str
        For messages.
    told : callable

    Returns
    -------
    mapping
        Its line with a `result`; empty without one.

    Raises
    ------
    PreconditionError
        It failed; with its own message. Or it crashed.
    ExhaustedError
        It failed, and says that it was not for what it was given: room had run out.
    CancelledError
        It was ended from outside.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        json.dumps(asked),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=_environment(),
        limit=1024 * 1024,
    )
    try:
        found, tail = await asyncio.gather(_follow(process, told), _tail(process))
        code = await process.wait()
    except asyncio.CancelledError:
        await asyncio.shield(_end(process))
        raise
    error: ProxyError | None = found[0]
    result: Mapping[str, Any] = found[1]
    if error is not None:
        raise error
    if code < 0:
        ended = signal.Signals(-code)
        kind = CancelledError if ended in _FROM_OUTSIDE else PreconditionError
        raise kind(f"{what}: ended by {ended.name}")
    if code != 0:
        raise PreconditionError(f"{what}: exit code {code}, expected 0. {tail}".strip())
    return result


async def _follow(process: asyncio.subprocess.Process, told: Told) -> tuple[ProxyError | None, Mapping[str, Any]]:
    """Read the worker's lines; return its error if it tells one, and its result."""
    assert process.stdout is not None
    error: ProxyError | None = None
    result: Mapping[str, Any] = {}
    with contextlib.suppress(ValueError):
        async for line in process.stdout:
            message = _message(line)
            if "error" in message:
                kind = ExhaustedError if message.get("exhausted") else PreconditionError
                error = kind(str(message["error"]))
            elif "result" in message:
                result = message
            elif "step" in message:
                told(str(message["step"]), int(message["done"]), message.get("total"), str(message.get("unit", "")))
    return error, result


def _message(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _tail(process: asyncio.subprocess.Process) -> str:
    """Read what the process says of itself, and keep the end."""
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(65536):
        kept = (kept + chunk)[-_MOST_BYTES:]
    lines = kept.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the process to end, and make it after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()


def _environment() -> dict[str, str]:
    # One thread for each pool: what serves on this machine goes first.
    return {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
