# SPDX-License-Identifier: Apache-2.0
"""Declare the options that several commands share, and parse repeatable ones.

The fields of the dataclasses have the names of the arguments of the functions that the commands call.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from graph_tools.errors import UsageError

Names = list[str] | None

# The metavar of flags is empty since newer versions of typer show their type, as if they had a value.
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print the report as JSON instead of tables.")]
MemoryLimit = Annotated[
    float, typer.Option(metavar="GB", help="Memory for tables. Larger tables are streamed row by row.")
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="PREFIX",
        show_default=False,
        help="Take the weights from this checkpoint, or from a folder with the table files of a training system.",
    ),
]
OpLibrary = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE.so",
        show_default=False,
        help="libprocessor.so; by default PROCESSOR_LIBRARY, or the library of the installed package processor. Name "
        "libraries with other ops of the model here as well. Repeatable.",
    ),
]


@dataclass
class PathOptions:
    """The model that a conversion reads, and the folder that it writes."""

    source: Annotated[Path, typer.Argument(metavar="IN", help="SavedModel folder, or GraphDef file (.pb, .pbtxt).")]
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="Folder to write; it must not exist. Not needed with --dry-run."),
    ] = None


@dataclass
class RequestOptions:
    """The requests that two models are compared with, and what counts as a proof."""

    requests: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="File with recorded requests to send as well. Repeatable.")
    ] = None
    samples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Number of requests to generate for each signature.")
    ] = 32
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Seed of the generated requests; equal seeds give equal requests.")
    ] = 0
    accept_weak_proof: Annotated[
        bool,
        typer.Option(
            "--accept-weak-proof",
            metavar="",
            help="Accept equal outputs even if few rows were answered, an input never changed, or a table was not "
            "looked up.",
        ),
    ] = False
    op_library: OpLibrary = None


@dataclass
class ProofOptions(RequestOptions):
    """How a conversion proves that its result equals the source; the fields are arguments of every conversion."""

    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="ABS[,REL]",
            help="Permitted difference of a score: ABS + REL x |score|. The default is 1e-5,1e-5; the differences of a "
            "lossy cut are reported, and judged only if this option is given.",
        ),
    ] = None
    check: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            metavar="",
            help="Compare the result with the source, and write OUT only if they answer alike.",
        ),
    ] = True
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Write nothing, and print a forecast of the result.")
    ] = False


def _list_passes(context: typer.Context, wanted: bool) -> None:
    """Print the passes of `cut`, and for other commands those of `fuse` before them."""
    if not wanted:
        return
    from graph_tools.cli.render_fuse import render_passes
    from graph_tools.cli.terminal import console
    from graph_tools.passes.cut import cutting_pass_names
    from graph_tools.passes.fuse import fusing_pass_names

    fusing = {} if context.info_name == "cut" else fusing_pass_names()
    render_passes(fusing | cutting_pass_names(), console())
    raise typer.Exit


@dataclass
class PassOptions:
    """Which passes run."""

    skip_passes: Annotated[
        Names, typer.Option("--skip-pass", metavar="NAME", help="Skip this pass. Repeatable.", show_default=False)
    ] = None
    list_passes: Annotated[
        bool,
        typer.Option(
            "--list-passes", metavar="", callback=_list_passes, is_eager=True, help="Print the passes and exit."
        ),
    ] = False


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


def size_in_bytes(text: str, option: str) -> int:
    """Convert a size such as `4GB` to bytes; units are powers of ten.

    Raises
    ------
    UsageError
        The text is not such a size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])B", text)
    if found is None:
        raise UsageError(f"{option}: '{text}', expected a size such as 500MB or 4GB")
    return int(float(found[1]) * 1000 ** ("KMGT".index(found[2]) + 1))


def assignments(values: Names, option: str) -> dict[str, str]:
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
