# SPDX-License-Identifier: Apache-2.0
"""Runs `graph-tools optimize` in a process of its own, at the lowest priority, with progress and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from serving_proxy.errors import CancelledError, PreconditionError

_GRACE_S = 15.0
_MOST_BYTES = 4096
_WORKER = "serving_proxy.optimise_worker"

Told = Callable[[str, int, int | None, str], None]
"""Step, done, total, unit."""


async def optimise(
    source: Path,
    target: Path,
    *,
    precision: str,
    table_store: Path,
    report: Path,
    requests: Path | None = None,
    cpus: str | None = None,
    told: Told,
) -> None:
    """Optimise a model into `target`, verified against the source.

    Cancelling the task ends the process, which leaves nothing half-written behind.

    Raises
    ------
    PreconditionError
        The model cannot be optimised, or its scores differ; with the tool's own message.
    """
    asked = {
        "source": str(source),
        "target": str(target),
        "precision": precision,
        "table_store": str(table_store),
        "report": str(report),
        "requests": [str(requests)] if requests else [],
        "cpus": cpus,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        _WORKER,
        json.dumps(asked),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=_environment(),
        limit=1024 * 1024,
    )
    try:
        error, tail = await asyncio.gather(_follow(process, told), _tail(process))
        code = await process.wait()
    except asyncio.CancelledError:
        await asyncio.shield(_end(process))
        raise
    if error is not None:
        raise PreconditionError(error)
    if code < 0:
        raise CancelledError(f"graph-tools optimize {source}: ended by {signal.Signals(-code).name}")
    if code != 0:
        raise PreconditionError(f"graph-tools optimize {source}: exit code {code}, expected 0. {tail}".strip())


async def _follow(process: asyncio.subprocess.Process, told: Told) -> str | None:
    """Read the worker's lines; return its error if it tells one."""
    assert process.stdout is not None
    error = None
    with contextlib.suppress(ValueError):
        async for line in process.stdout:
            message = _message(line)
            if "error" in message:
                error = str(message["error"])
            elif "step" in message:
                told(str(message["step"]), int(message["done"]), message.get("total"), str(message.get("unit", "")))
    return error


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
    return {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
