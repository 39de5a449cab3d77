# SPDX-License-Identifier: Apache-2.0
"""`cost-model profile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cost_model.cli.app import Json, app, errors, guarded, optional, print_json, print_note
from cost_model.errors import UsageError
from cost_model.machine import parse_cpus, this_machine

if TYPE_CHECKING:
    from cost_model.profiling.profile import Profile

_HELP = """Measure a model: service times by cores and rows, memory, and the cost of sharing cores.

The profile is written after every point, so the same command continues an interrupted run. `--reuse` takes over the
profile of a model with the same graph and other weights if one check point confirms it.

**Examples**

- `cost-model profile export/7 --out profile.json`
- `cost-model profile export/8 --reuse profile.json --out profile-8.json`
"""


Cpus = Annotated[str | None, optional("LIST", "CPUs to measure on; by default all that may be used.")]
Rows = Annotated[str, typer.Option(metavar="N,N", help="Numbers of rows per request.")]
Cores = Annotated[str, typer.Option(metavar="N,N", help="Numbers of cores per session.")]
Out = Annotated[Path | None, optional("FILE.json", "File to write the profile to.")]
Reuse = Annotated[Path | None, optional("FILE.json", "Profile of a model with the same graph.")]
Requests = Annotated[Path | None, optional("FILE.npz", "Recorded inputs by name; by default generated.")]
Seconds = Annotated[float, typer.Option(metavar="S", min=0.01, help="Duration of the measurement of each point.")]


@app.command(name="profile", help=_HELP)
@guarded
def profile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="SavedModel folder.")],
    cpus: Cpus = None,
    rows: Rows = "1,16,128,512",
    cores: Cores = "1",
    out: Out = None,
    reuse: Reuse = None,
    requests: Requests = None,
    seconds: Seconds = 1.5,
    as_json: Json = False,
) -> None:
    from cost_model.profiling.measure import profile_model

    machine = this_machine(parse_cpus(cpus) if cpus else None)
    # One CPU of each core: an SMT sibling is not a separate core.
    ours = [core.cpus[0] for core in machine.cores]
    records = _records(requests) if requests else None
    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("loading", total=None)

        def begin_step(what: str) -> None:
            # When a step begins, the previous one is complete. No step is counted before the total is known.
            bar.update(task, description=what, advance=0 if bar.tasks[task].total is None else 1)

        profile = profile_model(
            model,
            ours,
            _numbers("--rows", rows),
            _numbers("--cores", cores),
            out=out,
            reuse=reuse,
            records=records,
            seconds=seconds,
            progress=begin_step,
            warn=print_note,
            set_total=lambda steps: bar.update(task, total=steps, completed=-1),
        )
        bar.advance(task)
    if as_json:
        print_json(profile.to_json())
    else:
        _render(profile)


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= 1_000_000 for part in parts):
        raise UsageError(f"{option}: {text!r} found, expected whole numbers above 0, separated by commas")
    return sorted({int(part) for part in parts})


def _records(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError) as error:
        raise UsageError(f"{path}: {error}, expected arrays of numpy.savez") from error


def _render(profile: Profile) -> None:
    from cost_model.cli.render_plan import console, make_table
    from cost_model.profiling.profile import LEVELS

    table = make_table(f"Profile {profile.fingerprint}", "rows", "cores", "p50", "p90", "p99")
    for (count, size), quantiles in sorted(profile.points.items()):
        shown = [f"{quantiles[LEVELS.index(level)]:,.0f} us" for level in (0.5, 0.9, 0.99)]
        table.add_row(str(size), str(count), *shown)
    screen = console()
    screen.print(table)
    costs = ", ".join(f"{name} {value:+.1%}" for name, value in profile.interference.items())
    screen.print(f"\nmemory {profile.memory_mb:,.0f} MB; sharing costs: {costs or 'not measured'}")
    if profile.busy_before is not None and profile.busy_during is not None:
        screen.print(
            f"other processes used {profile.busy_before:.0%} of the CPUs before the measurement, "
            f"up to {profile.busy_during:.0%} during it"
        )
