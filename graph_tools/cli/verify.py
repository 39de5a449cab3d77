# SPDX-License-Identifier: Apache-2.0
"""`graph-tools verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import app, guarded
from graph_tools.cli.options import (
    AcceptWeakProof,
    Json,
    MemoryLimit,
    OpLibrary,
    Report,
    Seed,
    check_report,
    deliver,
    memory_bytes,
)
from graph_tools.cli.progress import steps
from graph_tools.cli.render_verify import render_verify
from graph_tools.cli.terminal import console

_HELP = """Ask two models the same and compare what they answer; exit 1 where they differ by more than the tolerance.

Requests are generated from the model's own vocabularies and tables, with absent keys, empty bags, empty strings,
unicode, negative and huge ids, and batches of many sizes. Recorded ones are asked as well: warm-up files of TensorFlow
Serving, requests in the EAS format, `.npz` files with an array for each input and, for AUC, `labels`.

**Examples**

- `graph-tools verify export/7 cut/7`
- `graph-tools verify export/7 cut/7 --requests export/7/assets.extra/tf_serving_warmup_requests`
- `graph-tools verify export/7 int8/7 --requests ratings.npz --tolerance 1e-2,1e-2 --report verify.json`
- `graph-tools verify cut/7 fused/7 --op-library libprocessor.so`
"""


@app.command(name="verify", help=_HELP)
@guarded
def verify_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="The model that is right.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The model in question.")],
    requests: Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Recorded requests; repeatable.")] = None,
    samples: Annotated[int, typer.Option(metavar="N", min=0, help="Generated requests for each signature.")] = 32,
    tolerance: Annotated[
        str, typer.Option(metavar="ABS[,REL]", help="Scores may differ by ABS + REL x |score|.")
    ] = "1e-5,1e-5",
    seed: Seed = 0,
    accept_weak_proof: AcceptWeakProof = False,
    op_library: OpLibrary = None,
    report: Report = None,
    memory_limit: MemoryLimit = 4.0,
    as_json: Json = False,
) -> int:
    from graph_tools.verification import verify

    check_report(report)
    memory = memory_bytes(memory_limit)
    with steps() as told:
        found = verify(
            a,
            b,
            requests=requests or (),
            samples=samples,
            tolerance=tolerance,
            seed=seed,
            op_library=op_library,
            memory_limit=memory,
            progress=told,
        )
    data = found.to_json()
    deliver(data, report, as_json)
    if not as_json:
        render_verify(data, console())
    return 0 if found.passed and (accept_weak_proof or not found.weak) else 1
