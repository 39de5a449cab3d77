# SPDX-License-Identifier: Apache-2.0
"""Write one table with each training system's layout, for conversions and warm starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helpers.models import sparse_files
from helpers.models.sparse_graphs import (
    MonolithExport,
    hps_configuration,
    hps_init,
    hps_lookup,
    tensornet_blocks,
    tensornet_gather,
    tensornet_pull,
    tensornet_variable,
)
from load_tests.workloads.sparse_exports import (
    Export,
    deeprec_lookup,
    deeprec_table,
    tfplus_lookup,
    tfplus_table,
    tfra_lookup,
    tfra_table,
)

KEYS = np.array([3, -9, 7, 0, 2**62], np.int64)
ROWS = np.arange(1, 16, dtype=np.float32).reshape(5, 3) / 4
DIM = 3
_TABLE = dict(zip(KEYS.tolist(), ROWS.tolist(), strict=True))


@dataclass(frozen=True)
class TrainingExport:
    """An export with the rows `ROWS` of `KEYS`, and the name of their table."""

    source: Path
    name: str
    family: str


def deeprec(folder: Path) -> TrainingExport:
    export = Export()
    handle = deeprec_table(export, "item_emb", KEYS, ROWS)
    rows = deeprec_lookup(export, handle, export.input("item"))
    return TrainingExport(export.finish(folder / "model", [rows], DIM), "item_emb", "deeprec")


def tfplus(folder: Path) -> TrainingExport:
    export = Export()
    handle = tfplus_table(export, "scope/item", KEYS, ROWS)
    rows = tfplus_lookup(export, handle, export.input("item"))
    return TrainingExport(export.finish(folder / "model", [rows], DIM), "scope/item", "tfplus")


def tfra(folder: Path) -> TrainingExport:
    export = Export()
    handle = tfra_table(export, "scope/item", KEYS, ROWS)
    rows = tfra_lookup(export, handle, export.input("item"), export.const(np.full(DIM, 0.5, np.float32)))
    return TrainingExport(export.finish(folder / "model", [rows], DIM), "scope_item", "tfra")


def tfra_folder(folder: Path) -> TrainingExport:
    """Two processes with two devices each."""
    devices = [{key: _TABLE[key] for key in KEYS.tolist()[i::4]} for i in range(4)]
    sparse_files.write_tfra(folder / "TFRADynamicEmbedding", "item", [devices[:2], devices[2:]])
    return TrainingExport(folder, "item", "tfra")


def monolith(folder: Path) -> TrainingExport:
    export = MonolithExport()
    shards = [{key: _TABLE[key] for key in KEYS.tolist()[i::2]} for i in range(2)]
    rows = export.lookup(export.table("item", shards, dim=DIM), export.input("item"), DIM)
    return TrainingExport(export.finish(folder / "model", [rows], DIM), "MonolithHashTable_item", "monolith")


def monolith_folder(folder: Path) -> TrainingExport:
    folder.mkdir(parents=True, exist_ok=True)
    entries = [sparse_files.monolith_entry(key, row, norm=[0.5] * DIM, time=1) for key, row in _TABLE.items()]
    sparse_files.write_monolith(folder, "item", [entries[:2], entries[2:]])
    return TrainingExport(folder, "item", "monolith")


def tensornet(folder: Path) -> TrainingExport:
    export = Export()
    name = tensornet_variable(export, "item/weights", 64, DIM)
    pull = tensornet_pull(export, 0, [name], [export.input("item")])
    export.finish(folder / "model", [tensornet_gather(export, name, f"{pull}:0", pull)], DIM)
    _write_tensornet(folder / "model" / "sparse_table" / "0")
    return TrainingExport(folder / "model", "0", "tensornet")


def tensornet_folder(folder: Path) -> TrainingExport:
    _write_tensornet(folder / "sparse_table" / "0")
    return TrainingExport(folder, "0", "tensornet")


def _write_tensornet(folder: Path) -> None:
    sparse_files.write_tensornet(folder, tensornet_blocks({key % 2**64: row for key, row in _TABLE.items()}))


def hps(folder: Path) -> TrainingExport:
    export = Export()
    rows = hps_lookup(export, hps_init(export, "ps.json"), export.input("item"), "m", 0, DIM)
    source = export.finish(folder / "model", [rows], DIM)
    hps_configuration(folder / "ps.json", {"m": [("item", "item.sparse", DIM, 0.5)]})
    sparse_files.write_hps(folder / "item.sparse", KEYS.tolist(), ROWS.tolist())
    return TrainingExport(source, "item", "hps")


def hps_configured(folder: Path) -> TrainingExport:
    hps(folder)
    return TrainingExport(folder / "ps.json", "item", "hps")


EXPORTS: dict[str, Callable[[Path], TrainingExport]] = {
    one.__name__: one
    for one in (
        deeprec,
        tfplus,
        tfra,
        tfra_folder,
        monolith,
        monolith_folder,
        tensornet,
        tensornet_folder,
        hps,
        hps_configured,
    )
}
