# SPDX-License-Identifier: Apache-2.0
"""`graph-tools cut`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import app, guarded
from graph_tools.cli.options import (
    Checkpoint,
    Json,
    MemoryLimit,
    Report,
    assignments,
    check_report,
    deliver,
    memory_bytes,
)
from graph_tools.cli.progress import steps
from graph_tools.cli.render_cut import render_cut
from graph_tools.cli.terminal import console
from graph_tools.errors import VerificationError
from graph_tools.options import ROW_TYPES, CutOptions

_HELP = """Cut an exported model down to what serving needs, and prove that scores stay equal.

Reads TF 1 and TF 2 SavedModels and frozen GraphDefs, with the sparse tables of DeepRec, TFPlus, TFRA, Monolith,
TensorNet and HugeCTR HPS, without any custom op library. Writes a SavedModel that stock TensorFlow runs, with the names
and dtypes of inputs and outputs as they were.

The result is compared with the source before it is put in place; where it answers differently, the exit code is 1 and
OUT is not there. IN is only read.

**Examples**

- `graph-tools cut export/7 cut/7`: lossless, verified
- `graph-tools cut export/7 --dry-run`: forecast the bytes of each table, write nothing
- `graph-tools cut export/7 cut/7 --embedding-dtype int8 --tensor-type 'user_id*=bf16' --tolerance 1e-2,1e-2`
- `graph-tools cut export/7 cut/7 --checkpoint training/model.ckpt-90000`
- `graph-tools cut deeprec/1 cut/1 --absent-key item_emb=zero --report cut.json`
"""
_FLAG = ""  # as metavar


@app.command(name="cut", help=_HELP)
@guarded
def cut_command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="SavedModel folder, or a GraphDef (.pb, .pbtxt).")],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="Folder to write; must not exist. Not needed with --dry-run."),
    ] = None,
    signature: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Keep this signature; repeatable. All by default.")
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Keep this output, by key or tensor name; repeatable. All by default."),
    ] = None,
    checkpoint: Checkpoint = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=_FLAG, help="Forecast bytes per table and row type, write nothing.")
    ] = False,
    absent_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=zero|row:K|default",
            help="What a table (name or pattern) gives for keys that it lacks: zeros, the row of key K, or what its "
            "training system gives; repeatable.",
        ),
    ] = None,
    embedding_dtype: Annotated[
        str,
        typer.Option(metavar="|".join(ROW_TYPES), help="How rows of tables are stored; all but fp32 are lossy."),
    ] = "fp32",
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE=TYPE", help="The same for tables of this name or pattern; repeatable."),
    ] = None,
    min_norm: Annotated[float, typer.Option(metavar="X", help="Drop rows with a smaller Euclidean norm. Lossy.")] = 0.0,
    min_frequency: Annotated[int, typer.Option(metavar="N", help="Drop rows of keys seen less often. Lossy.")] = 0,
    keep_graph_names: Annotated[
        bool, typer.Option("--keep-graph-names", metavar=_FLAG, help="Keep the names of nodes inside the graph.")
    ] = False,
    report: Report = None,
    memory_limit: MemoryLimit = 4.0,
    requests: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Recorded requests to verify with; repeatable.")
    ] = None,
    samples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Generated requests to verify with, for each signature.")
    ] = 32,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="ABS[,REL]",
            help="Scores may differ by ABS + REL x |score|: 1e-5,1e-5 by default. How far those of a lossy cut differ "
            "is reported, and judged only if this is given.",
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", metavar=_FLAG, help="Compare the result with the source.")
    ] = True,
    as_json: Json = False,
) -> int:
    from graph_tools.cutting import cut

    options = CutOptions(
        embedding_dtype=embedding_dtype,
        tensor_types=assignments(tensor_type, "--tensor-type"),
        absent_key=assignments(absent_key, "--absent-key"),
        min_norm=min_norm,
        min_frequency=min_frequency,
        keep_graph_names=keep_graph_names,
        memory_limit=memory_bytes(memory_limit),
    )
    check_report(report)
    try:
        with steps() as told:
            found = cut(
                source,
                target,
                signatures=tuple(signature or ()),
                outputs=tuple(outputs or ()),
                checkpoint=checkpoint,
                options=options,
                requests=requests or (),
                samples=samples,
                tolerance=tolerance,
                dry_run=dry_run,
                check=verify,
                progress=told,
            )
    except VerificationError as error:
        deliver(error.report, report, as_json)
        raise
    data = found.to_json()
    deliver(data, report, as_json)
    if not as_json:
        render_cut(data, console())
    return 0
