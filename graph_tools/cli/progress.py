# SPDX-License-Identifier: Apache-2.0
"""Progress bars for what takes more than a moment; on stderr, so that --json stays clean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn, TransferSpeedColumn


class Steps:
    """The steps of a long command: one line each, with bytes where bytes are moved."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, text: str, total: int | None = None) -> None:
        """End the step before and begin another; `total` in bytes, None where it is not known."""
        self.end()
        self._task = self._progress.add_task(text, total=total)

    def advance(self, count: int) -> None:
        """Say that `count` more bytes are done."""
        if self._task is not None:
            self._progress.advance(self._task, count)

    def end(self) -> None:
        """End the step."""
        if self._task is not None:
            total = self._progress.tasks[self._task].total
            self._progress.update(self._task, total=total or 1, completed=total or 1)
            self._task = None


@contextmanager
def steps(quiet: bool = False) -> Iterator[Steps]:
    """Show steps while the block runs."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as progress:
        made = Steps(progress)
        yield made
        made.end()
