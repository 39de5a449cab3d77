# SPDX-License-Identifier: Apache-2.0
"""Estimate the memory of models from their files, as hosts do before they load them (memory_budget.h).

A model takes its graph and variables for itself. Its table files are in memory once, however many models have the same
content.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cost_model._reading import Reader, describe
from cost_model.errors import WorkloadError
from cost_model.machine import Machine

TIERS = ("mapped", "resident", "tiered")
# The share of a machine's memory that hosts use.
USABLE = 0.9
_HUGE_PAGE = 2 << 20
# The sections of a table file that stay in memory if it is tiered: index, offsets of strings, strings, checksums.
_INDEX_SIZES = (112, 136, 160, 200)
_HEADER_BYTES, _MAGIC = 256, b"RECEMB\r\n"


@dataclass(frozen=True)
class ModelMemory:
    """The memory of a model.

    Parameters
    ----------
    own : int [bytes]
        Graph and variables.
    tables : dict of str to int [bytes]
        By content and tier; models that have a table in common share it.
    files : dict of str to int [bytes]
        Sizes of the files of these tables.
    """

    own: int = 0
    tables: dict[str, int] = field(default_factory=dict, hash=False)
    files: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def total(self) -> int:
        """Return the memory of the model if no other is there [bytes]."""
        return self.own + sum(self.tables.values())


@dataclass(frozen=True)
class MemoryUse:
    """The memory that the models of a plan take on each host.

    Parameters
    ----------
    limit : int or None [bytes]
        What hosts use of the machine's memory; None: it is not known.
    used : int [bytes]
    models : dict of str to int [bytes]
        What each model adds to those before it.
    lacking : str
        Why a model does not fit; "" if all do.
    """

    limit: int | None
    used: int
    models: dict[str, int]
    lacking: str = ""


def memory_use(models: Sequence[tuple[str, ModelMemory | None]], machine: Machine) -> MemoryUse | None:
    """Return the memory that models take together, in their order; None if that of no model is known."""
    if all(memory is None for _, memory in models):
        return None
    limit = int(machine.memory_gb * 1e9 * USABLE) or None
    used, added, lacking = 0, {}, ""
    tables: set[str] = set()
    for name, memory in models:
        if memory is None:
            continue
        more = memory.own + sum(size for key, size in memory.tables.items() if key not in tables)
        if limit is not None and used + more > limit and not lacking:
            lacking = (
                f"{name}: {_gigabytes(more)} of memory to be loaded beside {_gigabytes(used)}, "
                f"expected at most {_gigabytes(limit)} in all"
            )
        tables.update(memory.tables)
        added[name], used = more, used + more
    return MemoryUse(limit, used, added, lacking)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"


def parse_memory(reader: Reader, folder: Path) -> ModelMemory | None:
    """Take the members `artifact` and `tables` of a model; None if there are neither.

    Parameters
    ----------
    reader : Reader
        Of the model.
    folder : Path
        Paths are relative to it.
    """
    path = folder / reader.text("artifact") if "artifact" in reader else None
    if "tables" not in reader:
        return None if path is None else _of_artifact(reader, path, "mapped", None)
    tables = reader.inner("tables")
    tier = tables.text("tier", "mapped", one_of=TIERS)
    if ("memory" in tables) != (tier == "tiered"):
        found = "nothing" if tier == "tiered" else f"a memory of {tier} tables"
        raise tables.fail("memory", found, "the memory of tiered tables, such as 4GB, and of no others")
    memory = parse_size(tables, "memory") if tier == "tiered" else None
    if ("files" in tables) == (path is not None):
        raise reader.fail("tables", "both files and an artifact, or neither", "one of them")
    if path is None:
        files = tables.inner("files")
        sizes = {name: parse_size(files, name) for name in files.names()}
        tables.end()
        return _with_tables(0, sizes, tier, memory)
    tables.end()
    return _of_artifact(reader, path, tier, memory)


def parse_size(reader: Reader, key: str) -> int:
    """Take a number of bytes, or a size such as 4GB in powers of ten."""
    value = reader.take(key, expected="a size such as 500MB or 4GB")
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT])B", value) if isinstance(value, str) else None
    if found is None:
        raise reader.fail(key, describe(value), "a size such as 500MB or 4GB, or a number of bytes")
    return int(float(found[1]) * 1000 ** ("KMGT".index(found[2]) + 1))


def _of_artifact(reader: Reader, path: Path, tier: str, memory: int | None) -> ModelMemory:
    if not (path / "saved_model.pb").is_file():
        raise reader.fail("artifact", str(path), "the folder of a SavedModel")
    own, sizes, index = (path / "saved_model.pb").stat().st_size, {}, 0
    for file in sorted([*(path / "variables").rglob("*"), *(path / "assets").rglob("*")]):
        if not file.is_file():
            continue
        if file.suffix == ".emb" and (path / "assets") in file.parents:
            sizes[file.name if len(file.stem) == 64 else str(file.resolve())] = file.stat().st_size
            index += _index_bytes(file)
        else:
            own += file.stat().st_size
    if memory is not None and sizes and memory <= index:
        raise reader.fail(
            "tables.memory", f"{memory} bytes", f"more than {index}, which the indexes of the tables of '{path}' take"
        )
    return _with_tables(own, sizes, tier, memory)


def _index_bytes(file: Path) -> int:
    """Return the bytes of a table file that stay in memory if it is tiered."""
    with file.open("rb") as opened:
        header = opened.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or header[:8] != _MAGIC:
        raise WorkloadError(f"{file}: not a table file found, expected one of docs/table_format.md")
    return sum(struct.unpack_from("<Q", header, place)[0] for place in _INDEX_SIZES)


def _with_tables(own: int, sizes: Mapping[str, int], tier: str, memory: int | None) -> ModelMemory:
    tables = _in_tier(sizes, tier, memory)
    return ModelMemory(own, tables, dict(zip(tables, sizes.values(), strict=True)))


def _in_tier(sizes: Mapping[str, int], tier: str, memory: int | None) -> dict[str, int]:
    """Return the memory of table files; tiered ones divide theirs as their sizes are."""
    if tier == "resident":
        return {f"{name} resident": -(-size // _HUGE_PAGE) * _HUGE_PAGE for name, size in sizes.items()}
    if memory is None:
        return dict(sizes)
    whole = sum(sizes.values())
    share = min(1.0, memory / whole) if whole else 1.0
    limited = {name: int(share * size) for name, size in sizes.items()}
    return {f"{name} tiered {size}": size for name, size in limited.items()}
