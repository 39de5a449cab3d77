# SPDX-License-Identifier: Apache-2.0
"""Show progress bars for long operations, on stderr so that the output of --json contains only JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import ProgressColumn as Column
from rich.text import Text

from graph_tools.cli.terminal import load_tensorflow
from graph_tools.cli.units import bytes_text


class _Done(Column):
    """The finished amount in the step's unit, with the rate for bytes; empty if the total is not known."""

    def render(self, task: Task) -> Text:
        if task.total is None or not task.fields["unit"]:
            return Text("")
        if task.fields["unit"] != "bytes":
            return Text(f"{task.completed:,.0f} of {task.total:,.0f} {task.fields['unit']}")
        rate = f", {bytes_text(task.speed)}/s" if task.speed else ""
        return Text(f"{bytes_text(task.completed)} of {bytes_text(task.total)}{rate}")


class Steps:
    """The steps of a long command, one line each."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, text: str, total: int | None = None, unit: str = "") -> None:
        """End the previous step and begin another; `total` is None if not known, `unit` is, for example, bytes."""
        self.end()
        self._task = self._progress.add_task(escape(text), total=total, unit=unit)

    def advance(self, count: int) -> None:
        """Report that `count` more units are done."""
        if self._task is not None:
            self._progress.advance(self._task, count)

    def end(self) -> None:
        """End the step."""
        if self._task is not None:
            task = next(task for task in self._progress.tasks if task.id == self._task)
            if task.total is None:
                self._progress.update(self._task, total=1, completed=1, unit="")
            else:
                self._progress.update(self._task, completed=task.total)
            self._task = None


@contextmanager
def steps() -> Iterator[Steps]:
    """Show steps while the block runs, if stderr is a terminal."""
    load_tensorflow()
    screen = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), _Done(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        made = Steps(progress)
        yield made
        made.end()
