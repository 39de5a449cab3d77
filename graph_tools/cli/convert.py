# SPDX-License-Identifier: Apache-2.0
"""`graph-tools convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from graph_tools.cli.app import verb
from graph_tools.cli.options import Checkpoint, MemoryLimit, Names, memory_bytes
from graph_tools.cli.output import OutputOptions
from graph_tools.cli.progress import steps
from graph_tools.cli.terminal import Columns, console, show, table
from graph_tools.cli.units import bytes_text

_HELP = """Write the sparse tables of a training system as table files, for a warm start of elastic_training.

Reads the exports of DeepRec, TFPlus, TFRA, Monolith, TensorNet and HugeCTR HPS without any custom op library, and
folders of table files of TFRA, Monolith, TensorNet and HPS without a graph. IN is only read. Rows become fp32; the
state of optimizers is left out.

**Examples**

- `graph-tools convert deeprec/1 tables --checkpoint training/model.ckpt-90000`
- `graph-tools convert tfra/1/variables/TFRADynamicEmbedding tables --table 'user*'`
- `graph-tools convert hps/ps.json tables --checkpoint hps`
"""


@verb("convert", _HELP)
def convert_command(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="SavedModel folder, GraphDef file, or folder with table files.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; it must not exist.")],
    checkpoint: Checkpoint = None,
    tables: Annotated[
        Names,
        typer.Option(
            "--table", metavar="NAME", show_default=False, help="Convert this table (a name or pattern). Repeatable."
        ),
    ] = None,
    memory_limit: MemoryLimit = 4.0,
    output: OutputOptions,
) -> int:
    from graph_tools.verbs.convert_tables import convert

    output.check()
    with steps() as progress:
        report = convert(
            source,
            target,
            checkpoint=checkpoint,
            tables=tables or (),
            memory_limit=memory_bytes(memory_limit),
            progress=progress,
        )
    data = report.to_json()
    output.deliver(data)
    if not output.as_json:
        render_convert(data, console())
    return 0


def render_convert(report: dict[str, Any], screen: Console) -> None:
    """Print the report of `convert`."""
    columns: Columns = {
        "table": "name", "system": "left", "keys": "left", "rows": "right", "dim": "right", "not served": "right",
        "counts": "left", "size": "right",
    }  # fmt: skip
    rows = [
        [
            escape(one["name"]),
            one["family"],
            one["key"],
            f"{one['rows']:,}",
            str(one["dim"]),
            f"{one['ignored']:,}" if one["ignored"] else "",
            "yes" if one["counts_sha256"] else "no",
            bytes_text(one["bytes"]),
        ]
        for one in report["tables"]
    ]
    show(screen, table("Tables", columns, rows, screen.width))
    screen.print(f"written to {escape(report['target'])}", highlight=False, soft_wrap=True)
