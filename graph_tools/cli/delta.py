# SPDX-License-Identifier: Apache-2.0
"""`graph-tools delta`: inspect, compact, truncate, make and apply deltas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from graph_tools.cli.app import app, verb
from graph_tools.cli.cut import deliver_cut
from graph_tools.cli.once import OnceGroup
from graph_tools.cli.options import Json, MemoryLimit, PassOptions, PathOptions, ProofOptions, assignments, memory_bytes
from graph_tools.cli.options_cut import AbsentKey, LastEpoch, SelectionOptions, StorageOptions, TimelineOptions
from graph_tools.cli.output import OutputOptions
from graph_tools.cli.progress import steps
from graph_tools.cli.render_delta import render_delta, render_truncated, render_written
from graph_tools.cli.terminal import console

if TYPE_CHECKING:
    from graph_tools.json_data import Report

group = typer.Typer(
    cls=OnceGroup,
    help="Inspect, compact, truncate, make and apply deltas: the changes of a model from one epoch to the next.",
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
_TRUNCATE = """Withdraw the last segments of a timeline, so that others can be published in their place.

By default these are the segments from the first fault on. They are renamed, and the present writer is stopped. Hosts
that have not applied them go on with what is published next. Hosts that have must load the model again.

**Examples**

- `graph-tools delta truncate timeline`
- `graph-tools delta truncate timeline --to 4711`
"""
_MAKE = """Add the changes up to a later export to a timeline.

OLD is the export with which the timeline begins, or the state at another epoch of it. Both exports must have the same
graph: only the content of variables and sparse tables may differ. They are only read. NEW may be an incremental
checkpoint of DeepRec or a delta export of TFPlus, which continues the last epoch.

**Examples**

- `graph-tools delta make export/7 export/8 timeline`
- `graph-tools delta make model.ckpt-100 model.ckpt-200 timeline --model export/7`
- `graph-tools delta make model.ckpt-100 .incremental_checkpoint/incr-120 timeline --model export/7`
"""
_APPLY = """Cut an export with the changes of a timeline: the result equals a cut of the later export.

`graph-tools cut` and `optimize` do the same with `--timeline`.

BASE is the export with which the timeline begins, or one with the `lineage.json` of a later epoch. The result is
compared with BASE and the changes before it is put in place.

**Examples**

- `graph-tools delta apply export/7 timeline cut/8`
- `graph-tools delta apply export/7 timeline cut/8 --to 1000 --embedding-dtype bf16`
"""

Timeline = Annotated[Path, typer.Argument(metavar="TIMELINE", help="Folder of a timeline.")]


@verb("inspect", _INSPECT, group)
def inspect_command(
    path: Annotated[Path, typer.Argument(metavar="SEGMENT|TIMELINE", help="Segment, or folder of a timeline.")],
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.delta.inspect import inspect_delta

    report = inspect_delta(path)
    _deliver(report, as_json, render_delta)
    return 2 if report.fault else 0


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

    _deliver(compact_timeline(timeline, first, last), as_json, render_written)
    return 0


@verb("truncate", _TRUNCATE, group)
def truncate_command(
    timeline: Timeline,
    last: Annotated[
        int | None,
        typer.Option("--to", metavar="EPOCH", min=0, help="Last epoch that stays; by default that before the fault."),
    ] = None,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.delta.inspect import truncate_timeline

    _deliver(truncate_timeline(timeline, last), as_json, render_truncated)
    return 0


@verb("make", _MAKE, group)
def make_command(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Export, or checkpoint with --model.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Later export or checkpoint.")],
    timeline: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the timeline; it is created if needed.")],
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="EXPORT", show_default=False, help="Export with the graph of the checkpoints OLD and NEW."
        ),
    ] = None,
    absent_key: AbsentKey = None,
    memory_limit: MemoryLimit = 4.0,
    permit_not_finite: Annotated[
        bool,
        typer.Option(
            "--permit-not-finite", metavar="", help="Publish NaN and infinities, too, which hosts refuse by default."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.delta.make import make_delta

    with steps() as progress:
        report = make_delta(
            old,
            new,
            timeline,
            model=model,
            absent_key=assignments(absent_key, "--absent-key"),
            memory_limit=memory_bytes(memory_limit),
            permit_not_finite=permit_not_finite,
            progress=progress,
        )
    _deliver(report, as_json, render_written)
    return 0


@verb("apply", _APPLY, group)
def apply_command(
    *,
    base: Annotated[Path, typer.Argument(metavar="BASE", help="SavedModel folder; it is only read.")],
    timeline: Timeline,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="Folder to write; it must not exist. Not needed with --dry-run."),
    ] = None,
    last_epoch: LastEpoch = None,
    selection: SelectionOptions,
    storage: StorageOptions,
    passes: PassOptions,
    memory_limit: MemoryLimit = 4.0,
    proof: ProofOptions,
    output: OutputOptions,
) -> int:
    paths, epoch = PathOptions(base, target), TimelineOptions(timeline, last_epoch)
    return deliver_cut(paths, selection, epoch, storage, passes, memory_limit, proof, output)


def _deliver(report: Report, as_json: bool, render: Callable[[dict[str, Any], Console], None]) -> None:
    data = report.to_json()
    OutputOptions(as_json=as_json).deliver(data)
    if not as_json:
        render(data, console())
