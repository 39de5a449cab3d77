# SPDX-License-Identifier: Apache-2.0
"""Run programs that work for the proxy in separate processes, with progress and cancellation."""

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
# Signals that an operator sends, or the kernel when memory runs out.
_FROM_OUTSIDE = {signal.SIGTERM, signal.SIGINT, signal.SIGKILL}

Progress = Callable[[str, int, int | None, str], None]
"""Step, done, total, unit."""


async def run_worker(module: str, asked: Mapping[str, Any], what: str, progress: Progress) -> Mapping[str, Any]:
    """Run a module, which reads its arguments as JSON and prints steps, an error or its result as lines of JSON.

    Cancelling the task ends the process, which leaves no incomplete files behind.

    Parameters
    ----------
    module : str
    asked : mapping
        The module's arguments.
    what : str
        Name of the work in messages.
    progress : callable
        Called for each step.

    Returns
    -------
    mapping
        Its last line with a `result`; empty if there is none.

    Raises
    ------
    PreconditionError
        It failed, with its own message, or it crashed.
    ExhaustedError
        It failed, and reports that its input is not to blame: a resource was exhausted.
    CancelledError
        It was ended from outside.
    """
    process = await _start(module, json.dumps(asked))
    try:
        found, tail = await asyncio.gather(_follow(process, progress), _tail(process))
        code = await process.wait()
    except asyncio.CancelledError:
        await asyncio.shield(_end(process))
        raise
    error: ProxyError | None = found[0]
    result: Mapping[str, Any] = found[1]
    if error is not None:
        raise error
    _check_exit(code, what, tail)
    return result


async def _start(module: str, argument: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        argument,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=_environment(),
        limit=1024 * 1024,
    )


def _check_exit(code: int, what: str, tail: str) -> None:
    """Raise an error if a signal ended the process, or if it failed without reporting an error."""
    if code < 0:
        ended = signal.Signals(-code)
        kind = CancelledError if ended in _FROM_OUTSIDE else PreconditionError
        raise kind(f"{what}: ended by {ended.name}")
    if code != 0:
        raise PreconditionError(f"{what}: exit code {code}, expected 0. {tail}".strip())


async def _follow(
    process: asyncio.subprocess.Process, progress: Progress
) -> tuple[ProxyError | None, Mapping[str, Any]]:
    """Read the worker's lines; return its error, if it reports one, and its result."""
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
                progress(str(message["step"]), int(message["done"]), message.get("total"), str(message.get("unit", "")))
    return error, result


def _message(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def _tail(process: asyncio.subprocess.Process) -> str:
    """Read the process's stderr, and keep the end."""
    assert process.stderr is not None
    kept = b""
    while chunk := await process.stderr.read(65536):
        kept = (kept + chunk)[-_MOST_BYTES:]
    lines = kept.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Send the process SIGTERM, and SIGKILL if it has not ended after a while."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()


def _environment() -> dict[str, str]:
    # One thread for each pool, because serving on this machine has precedence.
    return {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
