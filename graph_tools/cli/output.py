# SPDX-License-Identifier: Apache-2.0
"""Deliver the reports of commands: as tables, as JSON, and into a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph_tools.cli.options import Json
from graph_tools.errors import UsageError, VerificationError
from graph_tools.progress import Progress
from graph_tools.verbs.staging import check_parent

if TYPE_CHECKING:
    from graph_tools.report.cut import CutReport


@dataclass
class OutputOptions:
    """Where a report goes."""

    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", show_default=False, help="Write the report to this file as well, as JSON."),
    ] = None
    as_json: Json = False

    def check(self) -> None:
        """Raise `UsageError`, before any work is done, if the file cannot be written."""
        if self.report is None:
            return
        if self.report.is_dir():
            raise UsageError(f"--report {self.report}: a folder, expected a file")
        check_parent(self.report, f"--report {self.report}")

    def deliver(self, data: dict[str, Any]) -> None:
        """Write a report to its file, and to stdout with `--json`."""
        from graph_tools.json_data import to_text, write_json

        if self.report is not None:
            self.report.parent.mkdir(parents=True, exist_ok=True)
            write_json(data, self.report)
        if self.as_json:
            typer.echo(to_text(data), nl=False)


def deliver_conversion(
    convert: Callable[[Progress], CutReport], output: OutputOptions, render: Callable[[dict[str, Any]], None]
) -> int:
    """Run a conversion with a progress bar, and deliver its report, even if the verification failed."""
    from graph_tools.cli.progress import steps

    output.check()
    try:
        with steps() as progress:
            report = convert(progress)
    except VerificationError as error:
        output.deliver(error.report)
        raise
    data = report.to_json()
    output.deliver(data)
    if not output.as_json:
        render(data)
    return 0
