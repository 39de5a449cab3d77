# SPDX-License-Identifier: Apache-2.0
"""`graph-tools verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import verb
from graph_tools.cli.options import MemoryLimit, RequestOptions, memory_bytes
from graph_tools.cli.output import OutputOptions
from graph_tools.cli.progress import steps
from graph_tools.cli.render_verify import render_verify
from graph_tools.cli.terminal import console

_HELP = """Send the same requests to two models and compare their outputs.

The exit code is 1 if they differ by more than the tolerance or the proof is weak.

Requests are generated from the model's own vocabularies and tables, with absent keys, empty bags, empty strings,
unicode, negative and huge ids, and batches of many sizes. Recorded requests are sent as well: warm-up files of
TensorFlow Serving, requests in the EAS format, and `.npz` files with an array for each input and, for AUC, `labels`.

**Examples**

- `graph-tools verify export/7 cut/7`
- `graph-tools verify export/7 cut/7 --requests export/7/assets.extra/tf_serving_warmup_requests`
- `graph-tools verify export/7 int8/7 --requests ratings.npz --tolerance 1e-2,1e-2 --report verify.json`
- `graph-tools verify cut/7 fused/7 --op-library libprocessor.so`
"""


@verb("verify", _HELP)
def verify_command(
    *,
    a: Annotated[Path, typer.Argument(metavar="A", help="The reference model.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The model to check.")],
    requests: RequestOptions,
    tolerance: Annotated[
        str, typer.Option(metavar="ABS[,REL]", help="Permitted difference of a score: ABS + REL x |score|.")
    ] = "1e-5,1e-5",
    memory_limit: MemoryLimit = 4.0,
    output: OutputOptions,
) -> int:
    from graph_tools.verification import verify

    output.check()
    memory = memory_bytes(memory_limit)
    with steps() as progress:
        report = verify(
            a,
            b,
            requests=requests.requests or (),
            samples=requests.samples,
            tolerance=tolerance,
            seed=requests.seed,
            op_library=requests.op_library,
            memory_limit=memory,
            progress=progress,
        )
    data = report.to_json()
    output.deliver(data)
    if not output.as_json:
        render_verify(data, console())
    return 0 if report.passed and (requests.accept_weak_proof or not report.weak) else 1
