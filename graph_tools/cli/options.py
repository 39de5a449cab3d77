# SPDX-License-Identifier: Apache-2.0
"""Define options that several verbs share, and parse repeatable ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graph_tools.errors import UsageError, VerificationError
from graph_tools.progress import Progress
from graph_tools.verbs.staging import check_parent

if TYPE_CHECKING:
    from graph_tools.report.cut import CutReport

# The metavar is empty since newer versions of typer show a flag's type, as if it had a value.
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of tables.")]
Report = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", show_default=False, help="Write the report as JSON to this file as well."),
]
MemoryLimit = Annotated[
    float, typer.Option(metavar="GB", help="Memory for tables; larger ones are streamed, row by row.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="PREFIX",
        show_default=False,
        help="Take the weights from this checkpoint, or from a folder with a system's table files.",
    ),
]
Source = Annotated[Path, typer.Argument(metavar="IN", help="SavedModel folder, or a GraphDef (.pb, .pbtxt).")]
Target = Annotated[
    Path | None, typer.Argument(metavar="OUT", help="Folder to write; must not exist. Not needed with --dry-run.")
]
Requests = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="Recorded requests to verify with; repeatable.")
]
Samples = Annotated[
    int, typer.Option(metavar="N", min=0, help="Generated requests to verify with, for each signature.")
]
Tolerance = Annotated[
    str | None,
    typer.Option(
        metavar="ABS[,REL]",
        help="Scores may differ by ABS + REL x |score|: 1e-5,1e-5 by default. How far those of a lossy cut differ "
        "is reported, and judged only if this is given.",
    ),
]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", metavar="", help="Compare the result with the source.")]
AcceptWeakProof = Annotated[
    bool,
    typer.Option(
        "--accept-weak-proof",
        metavar="",
        help="Take the result although few rows were answered, an input never changed or a table was not looked up.",
    ),
]
Seed = Annotated[
    int, typer.Option(metavar="N", min=0, help="Other generated requests for each number; the same for the same.")
]
OpLibrary = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE.so",
        show_default=False,
        help="libprocessor.so; else PROCESSOR_LIBRARY, or the one of the package processor. Also libraries with other "
        "ops of the model; repeatable.",
    ),
]


def memory_bytes(gigabytes: float) -> int:
    """Convert `--memory-limit` to bytes.

    Raises
    ------
    UsageError
        It is less than a conversion needs, or not a number.
    """
    if not 0.1 <= gigabytes < math.inf:
        raise UsageError(f"--memory-limit: {gigabytes}, expected at least 0.1 GB")
    return int(gigabytes * 1e9)


def check_report(path: Path | None) -> None:
    """Raise `UsageError`, before any work is done, if a report cannot be written to `path`."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--report {path}: a folder, expected a file")
    check_parent(path, f"--report {path}")


def deliver(data: dict[str, Any], path: Path | None, as_json: bool) -> None:
    """Write a report to its file, and to stdout with `--json`."""
    from graph_tools.json_data import to_text, write_json

    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(data, path)
    if as_json:
        typer.echo(to_text(data), nl=False)


def converted(
    convert: Callable[[Progress], CutReport],
    report: Path | None,
    as_json: bool,
    render: Callable[[dict[str, Any]], None],
) -> int:
    """Run a conversion with a progress bar, and deliver its report, even if the verification failed."""
    from graph_tools.cli.progress import steps

    check_report(report)
    try:
        with steps() as told:
            found = convert(told)
    except VerificationError as error:
        deliver(error.report, report, as_json)
        raise
    data = found.to_json()
    deliver(data, report, as_json)
    if not as_json:
        render(data)
    return 0


def assignments(values: list[str] | None, option: str) -> dict[str, str]:
    """Parse `NAME=VALUE` options.

    Raises
    ------
    UsageError
        An option has no `=`, no name or no value, or repeats a name.
    """
    found: dict[str, str] = {}
    for text in values or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option}: '{text}', expected NAME=VALUE")
        if name in found:
            raise UsageError(f"{option}: '{name}' is given twice, expected once")
        found[name] = value
    return found
