# SPDX-License-Identifier: Apache-2.0
"""`graph-tools delta`: inspect and compact timelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import app, verb
from graph_tools.cli.once import OnceGroup
from graph_tools.cli.options import Json
from graph_tools.cli.output import OutputOptions
from graph_tools.cli.progress import steps
from graph_tools.cli.render_delta import render_delta, render_written
from graph_tools.cli.terminal import console

group = typer.Typer(
    cls=OnceGroup,
    help="Inspect, compact, make and apply deltas: the changes of a model from one epoch to the next.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(group, name="delta")

_INSPECT = """Show what a segment or a timeline contains, after all checks.

If a timeline has a fault, such as a gap or a damaged segment, the exit code is 2; the segments before it are shown.

**Examples**

- `graph-tools delta inspect timeline`
- `graph-tools delta inspect timeline/0000000000000007-0000000000000007.delta --json`
"""
_COMPACT = """Replace consecutive segments of a timeline by one segment with their last state.

Readers that are at an epoch between the first and the last one can no longer continue, so leave the newest segments as
they are.

**Examples**

- `graph-tools delta compact timeline --to 1000`
"""

Timeline = Annotated[Path, typer.Argument(metavar="TIMELINE", help="Folder of a timeline.")]


@verb("inspect", _INSPECT, group)
def inspect_command(
    path: Annotated[Path, typer.Argument(metavar="SEGMENT|TIMELINE", help="Segment, or folder of a timeline.")],
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.delta.inspect import inspect_delta

    with steps() as progress:
        progress.begin(f"Reading {path}")
        data = inspect_delta(path).to_json()
    OutputOptions(as_json=as_json).deliver(data)
    if not as_json:
        render_delta(data, console())
    return 2 if data["fault"] else 0


@verb("compact", _COMPACT, group)
def compact_command(
    timeline: Timeline,
    first: Annotated[
        int | None, typer.Option("--from", metavar="EPOCH", min=1, help="First epoch; by default that of the timeline.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="EPOCH", min=1, help="Last epoch; by default that of the timeline.")
    ] = None,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.delta.inspect import compact_timeline

    with steps() as progress:
        progress.begin(f"Compacting {timeline}")
        data = compact_timeline(timeline, first, last).to_json()
    OutputOptions(as_json=as_json).deliver(data)
    if not as_json:
        render_written(data, console())
    return 0
