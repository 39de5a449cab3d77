# SPDX-License-Identifier: Apache-2.0
"""`graph-tools compress`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from graph_tools.cli.app import verb
from graph_tools.cli.groups import given
from graph_tools.cli.options import MemoryLimit, OpLibrary, PathOptions, memory_bytes
from graph_tools.cli.options_cut import SelectionOptions
from graph_tools.cli.output import OutputOptions, deliver_conversion
from graph_tools.cli.render_cut import notes, sizes_table
from graph_tools.cli.terminal import console, show
from graph_tools.cli.units import bytes_text
from graph_tools.errors import UsageError

if TYPE_CHECKING:
    from graph_tools.tables.mixed_dims import RowWidth

_HELP = """Replace the rows of a large table by sums of a few rows of a small one, and measure what that costs.

A key has a few rows: one for each block of bits of its hash (--bits, --blocks), for each of several hashes (--hashes),
or for its quotient and its remainder (--quotient-remainder). The rows are fitted to those of the table by least
squares; keys count as often as training met them, if the export says how often. Keys that the table does not contain
get rows as well.

With --dims, frequent keys keep wide rows and others have narrow ones, in a basis in which the first elements say most;
one small product after pooling turns them back. `graph-tools optimize` stores such rows in fewer bytes.

The AUC is measured on recorded requests with labels, and OUT is written only if it falls by at most --max-auc-loss.

**Examples**

- `graph-tools compress export/7 compressed/7 --table user_id --bits 48 --blocks 4 --requests clicks.npz`
- `graph-tools compress export/7 compressed/7 --table item --quotient-remainder 1000x1000 --requests clicks.npz`
- `graph-tools compress export/7 --table user_id --bits 48 --blocks 4 --dry-run`: bytes and error of the fit only
"""


@dataclass
class CodeOptions:
    """The table and its code; the fields are arguments of `compress`."""

    table: Annotated[
        str,
        typer.Option(metavar="NAME", help="Table whose rows are replaced: with keys, a variable, or its layer."),
    ]
    bits: Annotated[int | None, typer.Option(metavar="N", help="Bits of a key's hash that are used: 1 to 64.")] = None
    blocks: Annotated[int | None, typer.Option(metavar="N", help="Blocks of the bits, and so rows that a key has.")] = (
        None
    )
    cut: Annotated[
        str,
        typer.Option(
            metavar="succession|skip", help="Whether a block has bits that follow each other, or every N-th one."
        ),
    ] = "succession"
    hashes: Annotated[
        str | None,
        typer.Option(metavar="COUNTxROWS", help="Hashes of a key, and the rows that each of them has: 2x100000."),
    ] = None
    quotient_remainder: Annotated[
        str | None,
        typer.Option(
            metavar="QxR", help="Rows for a key's quotient and remainder: 1000x1000, for ids below a million."
        ),
    ] = None

    dims: Annotated[
        str | None,
        typer.Option(
            metavar="DIM:ROWS,...,DIM",
            help="Instead of a code, widths of rows from the most frequent keys on: 64:10000,16:100000,4.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the fields as arguments of `compress`.

        Raises
        ------
        UsageError
            A value is not made of numbers.
        """
        pairs = {"hashes": self.hashes, "quotient_remainder": self.quotient_remainder}
        made = {name: None if text is None else _pair(name, text) for name, text in pairs.items()}
        return given(self) | made | {"dims": _widths(self.dims or "")}


def _pair(name: str, text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,10})x([0-9]{1,10})", text)
    if found is None:
        raise UsageError(f"--{name.replace('_', '-')} {text}: expected two numbers, such as 2x100000")
    return int(found[1]), int(found[2])


def _widths(text: str) -> list[RowWidth]:
    from graph_tools.tables.mixed_dims import RowWidth

    found = []
    for part in text.split(",") if text else ():
        numbers = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,10}))?", part)
        if numbers is None:
            raise UsageError(f"--dims {text}: '{part}', expected DIM:ROWS,...,DIM, such as 64:10000,16:100000,4")
        found.append(RowWidth(int(numbers[1]), None if numbers[2] is None else int(numbers[2])))
    return found


@dataclass
class CostOptions:
    """How the cost is measured; the fields are arguments of `compress`."""

    requests: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="File with recorded requests; .npz files may have an array `labels`. Repeatable."
        ),
    ] = None
    max_auc_loss: Annotated[
        float, typer.Option(metavar="X", min=0.0, help="Largest loss of an output's AUC with which OUT is written.")
    ] = 0.003
    without_labels: Annotated[
        bool, typer.Option("--without-labels", metavar="", help="Write OUT even if no request has labels.")
    ] = False
    samples: Annotated[
        int, typer.Option(metavar="N", min=0, help="Requests to generate for each signature if none are recorded.")
    ] = 32
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the generated requests.")] = 0
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Write nothing, and print bytes and the error of the fit.")
    ] = False
    op_library: OpLibrary = None


@verb("compress", _HELP)
def compress_command(
    *,
    paths: PathOptions,
    code: CodeOptions,
    cost: CostOptions,
    selection: SelectionOptions,
    memory_limit: MemoryLimit = 4.0,
    output: OutputOptions,
) -> int:
    from graph_tools.options import CutOptions
    from graph_tools.verbs.compress import compress

    return deliver_conversion(
        lambda progress: compress(
            paths.source,
            paths.target,
            **code.arguments(),
            **given(cost),
            **given(selection),
            options=CutOptions(memory_limit=memory_bytes(memory_limit)),
            progress=progress,
        ),
        output,
        lambda data: render_compress(data, console()),
    )


def render_compress(report: dict[str, Any], console: Console) -> None:
    """Print a compress report."""
    show(console, sizes_table(report, "Compressed", console.width))
    found = report["compressed"]
    weighed = {"frequency": "by frequency", "norm": "by the squares of their rows"}.get(found["weighed_by"], "alike")
    before, after = bytes_text(found["bytes_before"]), bytes_text(found["bytes"])
    lines = [
        f"{escape(found['name'])}: {found['keys']:,} keys, {before}; now {found['rows']:,} rows, {after}",
        f"{100 * found['error']:.3g} % of the squares of the rows are lost; keys were weighed {weighed}",
    ]
    lines += [
        f"{escape(each['output'])}: AUC {each['after']:.4f}, before {each['before']:.4f}" for each in report["auc"]
    ]
    if not report["auc"]:
        lines.append("[yellow]AUC unknown[/]: no request with labels was compared")
    for line in [*lines, *notes(report)]:
        console.print(line, highlight=False, soft_wrap=True)
