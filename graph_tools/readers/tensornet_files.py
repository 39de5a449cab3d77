# SPDX-License-Identifier: Apache-2.0
"""Read tables that TensorNet saved: `sparse_table/<handle>/rank_<r>/sparse_block_<0..7>.gz`, text or binary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UnreadableError
from graph_tools.model.tables import Absent, Part, SparseTable
from graph_tools.readers import tensornet_layout as layouts
from graph_tools.readers.byte_stream import check_folder
from graph_tools.readers.tensornet_block import BinaryBlock, TextBlock, is_text
from graph_tools.tensors import Array, StreamTensor, split_rows

BLOCKS_PER_RANK = 8

ABSENT = Absent(
    None,
    "TensorNet: its server makes a new row for a key that it has not seen (zeros with sparse_zero_init, else random); "
    "an export has none of them, so zeros",
)

_BLOCK = re.compile(r"^(?P<prefix>(?:sparse_)?block_)(?P<index>\d+)(?P<suffix>(?:_(?:bin|txt))?)(?:\.gz)?$")
_RANK = re.compile(r"^rank_(\d+)$")


@dataclass(frozen=True)
class Options:
    """Properties of a table that its files do not always determine.

    Attributes
    ----------
    optimizer : str or None
        `AdaGrad`, `Adam` or `Ftrl`. Text contains it; for binary blocks it mostly follows from the length of the
        records.
    version_first : bool or None
        For text of AdaGrad with dim + 5 columns: True if the last two are version and show, as in old releases, instead
        of show and days. None: detected by a fraction in the last column, which days never have.
    use_cvm : bool
        The model was trained with `use_cvm`: rows are longer by two, for show and click.
    """

    optimizer: str | None = None
    version_first: bool | None = None
    use_cvm: bool = False


def find_tables(folder: Path) -> dict[str, Path]:
    """Return the tables below a model's folder or its `sparse_table`, by handle or name."""
    below = folder / "sparse_table"
    root = below if below.is_dir() else folder
    check_folder(root, "tables")
    return {path.name: path for path in sorted(root.iterdir()) if path.is_dir() and (path / "rank_0").is_dir()}


def block_files(folder: Path) -> list[Path]:
    """Return the blocks of a table's folder, of all ranks, in order.

    Raises
    ------
    UnreadableError
        A rank or one of its eight blocks is missing, or a rank has blocks of two kinds.
    """
    ranks = {}
    for path in folder.iterdir() if folder.is_dir() else []:
        if match := _RANK.match(path.name):
            ranks[int(match[1])] = path
    if not ranks:
        raise UnreadableError(f"{folder}: no rank_0, expected the folders of a table")
    files = []
    for rank in range(max(ranks) + 1):
        if rank not in ranks:
            raise UnreadableError(f"{folder / f'rank_{rank}'}: does not exist, expected ranks 0 to {max(ranks)}")
        files.extend(_blocks_of_rank(ranks[rank]))
    return files


def _blocks_of_rank(folder: Path) -> list[Path]:
    found: dict[int, Path] = {}
    kinds = set()
    for path in sorted(folder.iterdir()):
        if match := _BLOCK.match(path.name):
            kinds.add((match["prefix"], match["suffix"], path.suffix))
            found[int(match["index"])] = path
    if len(kinds) > 1:
        raise UnreadableError(f"{folder}: blocks named in {len(kinds)} ways, expected one")
    last = max([BLOCKS_PER_RANK - 1, *found])
    for index in range(last + 1):
        if index not in found:
            raise UnreadableError(f"{folder}: block {index} does not exist, expected blocks 0 to {last}")
    return [found[index] for index in sorted(found)]


def open_table(name: str, folder: Path, options: Options | None = None) -> SparseTable:
    """Open the table of a folder `sparse_table/<handle>`.

    Raises
    ------
    UnreadableError
        A block is missing or damaged, its dimension or layout differs from the others, the table is empty, or the
        layout of binary blocks is ambiguous without `options.optimizer`.
    """
    options = options or Options()
    files = block_files(folder)
    text = [is_text(path) for path in files]
    if any(text) != all(text):
        odd = files[text.index(not text[0])]
        raise UnreadableError(f"{odd}: {'text' if not text[0] else 'binary'}, expected the kind of {files[0].name}")
    blocks: list[TextBlock] | list[BinaryBlock]
    blocks = _text_blocks(files, options) if text[0] else _binary_blocks(files, options)

    dim = blocks[0].dim
    layout = next((block.layout for block in blocks if block.count), None)
    if layout is None:
        raise UnreadableError(f"table {name}: no rows in {folder}, expected at least one")
    for block in blocks:
        if block.count and block.layout != layout:
            raise UnreadableError(
                f"{block.path}: columns {', '.join(block.layout.names or ())}, expected {', '.join(layout.names or ())}"
            )
    if options.use_cvm and "click" not in (layout.names or ()):
        raise UnreadableError(f"table {name}: records without clicks, expected them with use_cvm")
    served = dim + 2 if options.use_cvm else dim
    column = layouts.weights_with_cvm if options.use_cvm else layouts.weights
    count = sum(block.count for block in blocks)
    return SparseTable(
        name=name,
        family="tensornet",
        key_dtype=np.dtype(np.uint64),
        dim=served,
        dtype=np.dtype(np.float32),
        parts=[_part(block, served, column) for block in blocks if block.count],
        absent=ABSENT,
        dropped_tensors=[
            (f"{name}: {field}", size * count, "optimizer state" if field in ("g2sum", "moments") else "statistics")
            for field, size in layouts.dropped_bytes(layout, dim, served).items()
        ],
    )


def _part(block: TextBlock | BinaryBlock, served: int, column: layouts.Column) -> Part:
    def stream(dtype: Any, shape: tuple[int, ...], pick: layouts.Column) -> StreamTensor:
        return StreamTensor(np.dtype(dtype), (block.count, *shape), partial(_chunks, block, pick))

    return Part(
        keys=stream(np.uint64, (), lambda records: records["sign"]),
        rows=stream(np.float32, (served,), column),
        frequencies=stream(np.float32, (), lambda records: records["show"]),
    )


def _chunks(block: TextBlock | BinaryBlock, pick: layouts.Column, rows: int) -> Iterator[Array]:
    return map(np.ascontiguousarray, split_rows((pick(records) for records in block.records()), rows))


def _text_blocks(files: list[Path], options: Options) -> list[TextBlock]:
    blocks = [TextBlock.open(path) for path in files]
    version_first = options.version_first
    if version_first is None:
        version_first = any(block.fraction_last for block in blocks)
    for block in blocks:
        _same_dim(block.path, block.dim, blocks[0])
        if block.optimizer != blocks[0].optimizer or options.optimizer not in (None, block.optimizer):
            expected = options.optimizer or f"{blocks[0].optimizer} as in {blocks[0].path.name}"
            raise UnreadableError(f"{block.path}: opt_name {block.optimizer}, expected {expected}")
        block.choose(version_first)
    for block in blocks:
        block.scan()
    return blocks


def _binary_blocks(files: list[Path], options: Options) -> list[BinaryBlock]:
    """Open binary blocks and find their common layout."""
    blocks = [BinaryBlock.open(path) for path in files]
    dim = blocks[0].dim
    for block in blocks:
        _same_dim(block.path, block.dim, blocks[0])
    possible = {
        kind: layout
        for kind, layout in layouts.binary_layouts(dim).items()
        if options.optimizer in (None, kind[0])
        and (kind[1] or not options.use_cvm)
        and all(block.fits(layout) for block in blocks)
    }
    distinct = {str(layout): layout for layout in possible.values()}
    if len(distinct) > 1:
        distinct = {key: each for key, each in distinct.items() if all(block.is_plausible(each) for block in blocks)}
    if not distinct:
        sizes = ", ".join(str(block.size - 4) for block in blocks)
        raise UnreadableError(
            f"{files[0].parent.parent}: blocks of {sizes} bytes, expected whole records of AdaGrad, Adam or Ftrl "
            f"of dimension {dim}"
        )
    if len(distinct) > 1 and any(block.head.strip(b"\n") for block in blocks):
        kinds = " or ".join(sorted({kind[0] + " with clicks" * kind[1] for kind in possible}))
        raise UnreadableError(f"{files[0].parent.parent}: records that fit {kinds}, expected those of one optimizer")
    for block in blocks:
        block.choose(next(iter(distinct.values())))
    return blocks


def _same_dim(path: Path, dim: int, first: TextBlock | BinaryBlock) -> None:
    if dim != first.dim:
        raise UnreadableError(f"{path}: dim {dim}, expected {first.dim} as in {first.path.name}")
