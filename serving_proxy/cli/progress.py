# SPDX-License-Identifier: Apache-2.0
"""Wait for a long operation with a progress bar; Ctrl-C cancels it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from serving_proxy.cli.app import remark
from serving_proxy.client import Client
from serving_proxy.errors import ProxyError

# Without a terminal, a step that takes longer is told again, so that silence is not taken for a hang.
_SECONDS_BETWEEN = 10.0


def follow(client: Client, job: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
    """Wait for an operation and return its final state.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C or SIGTERM: the operation was cancelled.
    """
    try:
        with _interruptible(), _show_progress(f"{job['model']}/{job['version']}") as show_step:
            return client.wait(job["id"], timeout, show_step)
    except KeyboardInterrupt:
        try:
            ended = client.cancel(job["id"])
        except ProxyError as error:
            remark(f"not cancelled: {error}")
        else:
            remark(f"{job['model']}/{job['version']}: {ended['state']}")
        raise


def follow_version(client: Client, name: str, version: int, timeout: float | None, since: float) -> dict[str, Any]:
    """Wait until a version is ready, and return its model; see `Client.wait_until_ready`."""
    with _show_progress(f"{name}/{version}") as show_step:

        def show(entry: dict[str, Any]) -> None:
            step = f"{entry['state']}, {entry['reason']}" if entry["reason"] else entry["state"]
            show_step({"step": step, "total": 0, "done": 0})

        return client.wait_until_ready(name, version, timeout, show, since)


@contextmanager
def _interruptible() -> Iterator[None]:
    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _show_progress(name: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show the progress of an operation as a bar on a terminal, else as a line for each step and every ten seconds."""
    screen = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    last, begun, told = "", 0.0, 0.0
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(escape(name), total=None)

        def show_step(job: dict[str, Any]) -> None:
            nonlocal last, begun, told
            # The operation has ended: keep the last step.
            if not job["step"]:
                return
            total, done = job["total"] or None, job["done"]
            progress.update(
                task, description=escape(f"{name}: {job['step']}"), total=total, completed=done if total else 0
            )
            now = time.monotonic()
            if job["step"] != last:
                last, begun, told = job["step"], now, now
                if not screen.is_terminal:
                    remark(f"{name}: {last}")
            elif not screen.is_terminal and now - told >= _SECONDS_BETWEEN:
                told = now
                share = f", {done / total:.0%}" if total else ""
                remark(f"{name}: {last}, {now - begun:.0f} s{share}")

        yield show_step
