# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from rich.console import Console
from rich.progress import Progress

from graph_tools.cli.progress import Steps, _Done, steps


def test_steps_end_full_and_show_their_unit() -> None:
    progress = Progress("{task.description}", _Done(), console=Console(quiet=True))
    shown = Steps(progress)
    shown.advance(3)
    shown.begin("Reading [a]")
    shown.advance(1)
    shown.begin("Writing", 2_000_000, "bytes")
    shown.advance(1_000_000)
    reading, writing = progress.tasks
    assert reading.finished
    assert _Done().render(reading).plain == ""
    assert _Done().render(writing).plain.startswith("1.0 MB of 2.0 MB")
    shown.begin("Asking", 32, "requests")
    shown.advance(8)
    assert _Done().render(progress.tasks[2]).plain == "8 of 32 requests"
    shown.end()
    shown.end()
    assert all(task.finished for task in progress.tasks)


def test_without_a_terminal_no_progress_is_printed(capfd: object) -> None:
    with steps() as shown:
        shown.begin("Reading")
    captured = capfd.readouterr()  # type: ignore[attr-defined]
    assert (captured.out, captured.err) == ("", "")
