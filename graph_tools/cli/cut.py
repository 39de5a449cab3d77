# SPDX-License-Identifier: Apache-2.0
"""`graph-tools cut`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graph_tools.cli.app import app, guarded
from graph_tools.cli.options import Checkpoint, Json, assignments
from graph_tools.cli.progress import steps
from graph_tools.cli.render_cut import render_cut
from graph_tools.cli.terminal import console
from graph_tools.errors import UsageError

_HELP = """Cut an exported model down to what serving needs, and prove that scores stay equal.

Reads TF 1 and TF 2 SavedModels and frozen GraphDefs, with the sparse tables of DeepRec, TFPlus, TFRA, Monolith,
TensorNet and HugeCTR HPS, without any custom op library. Writes a SavedModel that stock TensorFlow runs.

**Examples**

- `graph-tools cut export/7 cut/7` — lossless, verified
- `graph-tools cut export/7 cut/7 --dry-run` — forecast the bytes of each table, write nothing
- `graph-tools cut export/7 cut/7 --embedding-dtype int8 --tensor-type 'user_id*=bf16'`
- `graph-tools cut deeprec/1 cut/1 --absent-key item_emb=zero --report cut.json`
"""


@app.command(name="cut", help=_HELP)
@guarded
def cut_command(
    source: Annotated[Path, typer.Argument(metavar="IN", help="SavedModel folder, or a GraphDef (.pb, .pbtxt).")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; must not exist.")],
    signature: Annotated[
        list[str] | None, typer.Option(help="Keep this signature; repeatable. All by default.")
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(help="Keep this output, by key or tensor name; repeatable. All by default.")
    ] = None,
    checkpoint: Checkpoint = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Forecast bytes per table, write nothing.")] = False,
    absent_key: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE=zero|row:K|default", help="What a table gives for keys that it lacks; repeatable."),
    ] = None,
    embedding_dtype: Annotated[
        str, typer.Option(metavar="fp32|bf16|fp16|int8|int4", help="How rows of embedding tables are stored.")
    ] = "fp32",
    tensor_type: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="The same for tables by name or pattern; repeatable.")
    ] = None,
    min_norm: Annotated[float, typer.Option(min=0, help="Drop rows with a smaller Euclidean norm. Lossy.")] = 0.0,
    min_frequency: Annotated[int, typer.Option(min=0, help="Drop rows of keys seen less often. Lossy.")] = 0,
    keep_graph_names: Annotated[
        bool, typer.Option("--keep-graph-names", help="Keep the names of nodes inside the graph.")
    ] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the report here as well.")] = None,
    memory_limit: Annotated[float, typer.Option(metavar="GB", min=0.1, help="Memory for tables.")] = 4.0,
    requests: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Recorded requests to verify with; repeatable.")
    ] = None,
    samples: Annotated[int, typer.Option(min=0, help="Generated requests to verify with, for each signature.")] = 32,
    tolerance: Annotated[
        str | None,
        typer.Option(
            metavar="ABS[,REL]",
            help="Scores may differ by ABS + REL x |score|. 1e-5,1e-5 by default; lossy cuts are only judged if given.",
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Compare scores with the source.")] = True,
    as_json: Json = False,
) -> int:
    from graph_tools.cutting import cut
    from graph_tools.options import CutOptions
    from graph_tools.report import to_text, write_json

    options = CutOptions(
        embedding_dtype=embedding_dtype,
        tensor_types=assignments(tensor_type, "--tensor-type"),
        absent_key=assignments(absent_key, "--absent-key"),
        min_norm=min_norm,
        min_frequency=min_frequency,
        keep_graph_names=keep_graph_names,
        memory_limit=int(memory_limit * 1e9),
    )
    if report is not None and report.is_dir():
        raise UsageError(f"--report {report}: a folder, expected a file")
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
    data = found.to_json()
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        write_json(data, report)
    if as_json:
        typer.echo(to_text(data), nl=False)
    else:
        render_cut(data, console())
    return 0
