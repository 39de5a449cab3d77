# SPDX-License-Identifier: Apache-2.0
"""`cost-model calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cost_model.cli.app import Json, app, guarded, print_json

if TYPE_CHECKING:
    from cost_model.calibration import Calibration, Trace
    from cost_model.profiling.profile import Profile

_HELP = """Fit how much service times under load differ from profiles on this machine.

A profile is measured on a quiet machine with one caller. The trace contains runs of the same models under Poisson
arrivals; in a checkout, `python -m load_tests.cost_model.predictions` records one, with its profiles, in
`results/predictions`. The calibration contains an overhead and a factor for service times, the stalls of the cores, and
how much models slow each other down. Pass the file to `plan` and `simulate` with `--calibration`.

**Example**

- `cost-model calibrate profile-W1.json profile-W2.json --trace trace-fit.json --out calibration.json`
"""


@app.command(name="calibrate", help=_HELP)
@guarded
def calibrate_command(
    profiles: Annotated[list[Path], typer.Argument(metavar="PROFILE…", help="Profiles of the models in the trace.")],
    trace: Annotated[Path, typer.Option(metavar="TRACE.json", help="Trace of measured runs.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", show_default=False, help="File to write the calibration to.")
    ] = None,
    any_cpu: Annotated[
        bool, typer.Option("--any-cpu", metavar="", help="Accept profiles and a trace from another CPU model.")
    ] = False,
    as_json: Json = False,
) -> None:
    from cost_model.calibration import calibrate, load_trace
    from cost_model.profiling.profile import load_profile

    read = [load_profile(path, any_cpu=any_cpu) for path in profiles]
    runs = load_trace(trace)
    calibration = calibrate(read, runs)
    if out is not None:
        calibration.save(out)
    if as_json:
        print_json(calibration.to_json())
    else:
        _render(calibration, read, runs)


def _render(calibration: Calibration, profiles: list[Profile], trace: Trace) -> None:
    from cost_model.calibration.check import check_runs
    from cost_model.cli.render_plan import console, make_table

    screen = console()
    disturbance = calibration.disturbance
    screen.print(
        f"service times: {disturbance.overhead_us:.0f} us + {disturbance.factor:.3f} x profile; "
        f"{disturbance.stall_rate:.1f} stalls per second of work, {disturbance.stalled:.2%} of it"
    )
    costs = calibration.interference
    screen.print(
        f"interference: switch {costs.switch:+.1%}, shared cache {costs.shared_cache:+.1%}, "
        f"bandwidth {costs.bandwidth:+.1%} above {costs.knee:.0%}\n"
    )
    table = make_table("Runs used for the fit", "model", "load", "p50", "predicted", "p99", "predicted", "error")
    for line in check_runs(profiles, trace, calibration):
        table.add_row(
            line.name,
            f"{line.utilisation:.0%}",
            f"{line.measured_p50_ms:.2f} ms",
            f"{line.p50_ms:.2f} ms",
            f"{line.measured_p99_ms:.2f} ms",
            f"{line.p99_ms:.2f} ms",
            f"{line.p99_off:+.0%}",
        )
    screen.print(table)
