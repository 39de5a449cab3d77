# SPDX-License-Identifier: Apache-2.0
"""Write the golden vectors of deltas, tests/golden/delta.

    PYTHONPATH=.:tests python tests/helpers/graph_tools/delta_vectors.py

docs/delta_format.md describes them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.segment import Segment
from graph_tools.store.segment_layout import SegmentHeader
from graph_tools.store.segment_writer import write_segment
from graph_tools.store.timeline import first_chain, segment_name, term_name
from graph_tools.tensors import Array, TensorSource
from helpers.graph_tools.delta_segments import DAMAGES, LINEAGE, SEGMENTS, header, int_keys, table, write_segments

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "delta"
_OTHER_LINEAGE = bytes(range(16, 32))
_LONG = 4096


def write_vectors(folder: Path) -> None:
    """Write all golden vectors into a folder, which must not exist."""
    for part in ("segments", "damaged", "timelines"):
        (folder / part).mkdir(parents=True)
    write_segments(folder)
    expected = {
        "lineage": LINEAGE.hex(),
        "segments": {name: _expected_segment(folder / "segments" / f"{name}.delta", name) for name in SEGMENTS},
        "damaged": {name: {"check": damage.check, "mentions": damage.mentions} for name, damage in DAMAGES.items()},
        "timelines": write_timelines(folder / "timelines"),
    }
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (folder / "expected.json").write_text(text + "\n", encoding="utf-8")


# What a reader must find in a segment, from the content that was written


def _expected_segment(path: Path, name: str) -> dict[str, Any]:
    fields, delta = SEGMENTS[name]
    raw = path.read_bytes()
    return _expected_header(fields, raw) | {
        "tables": [_expected_table(entry) for entry in sorted(delta.tables, key=lambda entry: entry.name.encode())],
        "variables": [
            {"name": key, "shape": list(tensor.shape), "data": array_data(tensor.read())}
            for key, tensor in sorted(delta.variables.items(), key=lambda item: item[0].encode())
        ],
        "streams": [
            {"name": key, "position": position}
            for key, position in sorted(delta.streams.items(), key=lambda item: item[0].encode())
        ],
        "chains": [chain.hex() for chain in delta.chains],
    }


def _expected_header(fields: SegmentHeader, raw: bytes) -> dict[str, Any]:
    return {
        "lineage": fields.lineage.hex(),
        "first_epoch": fields.first_epoch,
        "last_epoch": fields.last_epoch,
        "term": fields.term,
        "event_time": fields.event_time,
        "write_time": fields.write_time,
        "previous": fields.previous.hex(),
        "chain": (fields.chain if fields.compacted else raw[-32:]).hex(),
    }


def _expected_table(entry: TableDelta) -> dict[str, Any]:
    return {
        "name": entry.name,
        "key_kind": entry.key_kind,
        "dim": entry.dim,
        "changed": key_data(entry.changed),
        "rows": array_data(entry.rows.read()),
        "deleted": key_data(entry.deleted),
        "default_numbers": entry.default_numbers.tolist(),
        "default_rows": array_data(np.empty(0, np.float32) if entry.default_rows is None else entry.default_rows),
    }


def key_data(keys: TensorSource) -> list[Any]:
    return [key.hex() if isinstance(key, bytes) else key for key in keys.read().tolist()]


def array_data(numbers: Array) -> dict[str, str]:
    raw = np.asarray(numbers, "<f4").tobytes()
    return {"sha256": hashlib.sha256(raw).hexdigest()} if len(raw) > _LONG else {"hex": raw.hex()}


# Timelines


class _Maker:
    """Writes the segments of one timeline, each of which continues the one before."""

    def __init__(self, folder: Path, lineage: bytes = LINEAGE) -> None:
        self.folder = folder
        folder.mkdir()
        self.lineage = lineage
        self.chains = {0: first_chain(lineage)}

    def add(self, first: int, last: int | None = None, chains: tuple[bytes, ...] = (), **fields: Any) -> Path:
        last = first if last is None else last
        made = header(first, last, lineage=self.lineage, previous=self.chains[first - 1])
        if last != first:
            made = replace(made, chain=self.chains[last])
        path = self.folder / segment_name(first, last)
        write_segment(path, replace(made, **fields), replace(_delta(last), chains=chains))
        if last == first:
            self.chains[first] = Segment(path).hash
        return path

    def result(self, *read: tuple[int, int], term: int = 1, fault: Sequence[str] = ()) -> dict[str, Any]:
        epoch = read[-1][1] if read else 0
        return {
            "segments": [segment_name(*epochs) for epochs in read],
            "epoch": epoch,
            "chain": self.chains[epoch].hex(),
            "term": term,
            "fault": {"file": fault[0], "mentions": list(fault[1:])} if fault else None,
        }


def _delta(epoch: int) -> Delta:
    return Delta((table("user/embedding", int_keys(epoch), 2, seed=epoch),), {}, {"clicks/0": 100 * epoch})


def write_timelines(folder: Path) -> dict[str, Any]:
    """Write all timelines, and return what a reader must find in each."""
    found = {}

    def maker(name: str, epochs: int = 0, lineage: bytes = LINEAGE) -> _Maker:
        made = _Maker(folder / name, lineage)
        for epoch in range(1, epochs + 1):
            made.add(epoch)
        return made

    made = maker("without_segments")
    (made.folder / term_name(1)).write_text("a writer that has written nothing\n")
    found["without_segments"] = made.result(term=0)

    made = maker("three_epochs", 3)
    found["three_epochs"] = made.result((1, 1), (2, 2), (3, 3))

    made = maker("two_writers", 2)
    made.add(3, term=4)
    for term in (1, 4):
        (made.folder / term_name(term)).write_text(f"writer {term}\n")
    found["two_writers"] = made.result((1, 1), (2, 2), (3, 3), term=4)

    made = maker("other_files", 1)
    for name in (".0000000000000002-0000000000000002.delta", "2-2.delta", "0000000000000002-0000000000000002.delta~"):
        (made.folder / name).write_text("no segment\n")
    found["other_files"] = made.result((1, 1))

    made = maker("compacted", 3)
    made.add(1, 2)
    for epoch in (1, 2):
        (made.folder / segment_name(epoch, epoch)).unlink()
    found["compacted"] = made.result((1, 2), (3, 3))

    made = maker("compacted_beside_old", 4)
    made.add(1, 2)
    made.add(2, 4)
    made.add(1, 3)
    found["compacted_beside_old"] = made.result((1, 3), (4, 4))

    made = maker("compacted_across", 4)
    made.add(1, 2)
    made.add(2, 4, chains=(made.chains[2], made.chains[3]))
    for epoch in range(1, 5):
        (made.folder / segment_name(epoch, epoch)).unlink()
    found["compacted_across"] = made.result((1, 2), (2, 4))

    # Faults
    made = maker("across_another_history", 4)
    made.add(1, 2)
    made.add(2, 4, chains=(hashlib.sha256(b"another").digest(), made.chains[3]))
    for epoch in range(1, 5):
        (made.folder / segment_name(epoch, epoch)).unlink()
    found["across_another_history"] = made.result((1, 2), fault=(segment_name(2, 4), "another history"))

    made = maker("gap", 3)
    (made.folder / segment_name(2, 2)).unlink()
    found["gap"] = made.result((1, 1), fault=(segment_name(3, 3), "gap"))

    made = maker("overlap", 4)
    made.add(1, 2)
    made.add(2, 4)
    for epoch in (3, 4):
        (made.folder / segment_name(epoch, epoch)).unlink()
    found["overlap"] = made.result((1, 2), fault=(segment_name(2, 4), "out of order"))

    made = maker("duplicate", 2)
    shutil.copy(made.folder / segment_name(2, 2), made.folder / segment_name(3, 3))
    found["duplicate"] = made.result((1, 1), (2, 2), fault=(segment_name(3, 3), "out of order"))

    made = maker("reordered", 3)
    second, third = (made.folder / segment_name(epoch, epoch) for epoch in (2, 3))
    second.rename(made.folder / ".second")
    third.rename(second)
    (made.folder / ".second").rename(third)
    found["reordered"] = made.result((1, 1), fault=(segment_name(2, 2), "out of order"))

    made = maker("other_lineage", 1)
    made.add(2, lineage=_OTHER_LINEAGE)
    found["other_lineage"] = made.result((1, 1), fault=(segment_name(2, 2), "another lineage"))

    made = maker("other_history", 1)
    made.add(2, previous=hashlib.sha256(b"another").digest())
    found["other_history"] = made.result((1, 1), fault=(segment_name(2, 2), "another history"))

    made = maker("second_writer")
    made.add(1, term=2)
    made.add(2, term=1)
    found["second_writer"] = made.result((1, 1), term=2, fault=(segment_name(2, 2), "second writer"))

    made = maker("truncated", 3)
    path = made.folder / segment_name(2, 2)
    raw = path.read_bytes()
    path.unlink()
    path.write_bytes(raw[:300])
    found["truncated"] = made.result((1, 1), fault=(segment_name(2, 2), "file_size"))
    return found


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_vectors(GOLDEN)
