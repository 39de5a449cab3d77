# SPDX-License-Identifier: Apache-2.0
"""Show progress: steps with progress bars on a terminal, plain lines elsewhere, no output of native libraries."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

#: Called with the amount done and the total amount.
Advance = Callable[[int, int], None]


class Terminal:
    """Print steps, one at a time, and messages between them."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Advance]:
        """Show a step while it runs: a progress bar (moving until the first report of progress), then the time it took.

        On a terminal the bar stays with its time; elsewhere the step is one line, printed when it ends.
        """
        if not self.console.is_terminal:
            start = time.monotonic()
            yield lambda done, total: None
            self.console.print(f"{title}: {time.monotonic() - start:.1f} s", highlight=False)
            return
        columns = (
            TextColumn("{task.description}", table_column=Column(width=34, no_wrap=True)),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, expand=True) as progress:
            task = progress.add_task(title, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)
            total = progress.tasks[0].total or 1
            progress.update(task, total=total, completed=total)


@contextmanager
def foreign_noise_to(log: Path) -> Iterator[None]:
    """Redirect native libraries' standard error to the file `log`; Python's own messages still appear.

    TensorFlow writes some lines before its log levels take effect.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    real, python = os.dup(2), sys.stderr
    try:
        with log.open("wb") as file, os.fdopen(os.dup(real), "w", buffering=1) as visible:
            os.dup2(file.fileno(), 2)
            sys.stderr = visible
            try:
                yield
            finally:
                os.dup2(real, 2)
                sys.stderr = python
    finally:
        os.close(real)
