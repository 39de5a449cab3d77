# SPDX-License-Identifier: Apache-2.0
"""Write exports of one model at several moments of its training, for each training system.

From one moment to the next, rows change, keys appear and disappear, and dense weights change.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

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
from load_tests.workloads.sparse_exports import export as export_module

DIM = 3
MOMENTS = 3
ASKED = np.array([*range(-5, 40), 2**62, -(2**63), 2**63 - 1], np.int64)
WORDS = np.array([b"", b"\0", b"a", b"a\0", *(b"w%d" % number for number in range(30))], object)


def keys_at(moment: int) -> np.ndarray:
    """Return the keys [n] int64 of a moment, in an order of its own."""
    keys = [key for key in range(-3, 20) if (key + moment) % 7] + [2**62] + [-(2**63)] * (moment % 2)
    return np.random.default_rng(moment).permutation(np.array(keys, np.int64))


def rows_at(moment: int, keys: np.ndarray, dim: int = DIM) -> np.ndarray:
    """Return the rows [n, dim] of keys; every third key has learned something at each moment."""
    learned = np.where(keys % 3 == 0, moment, 0).astype(np.float32)
    return (np.outer(keys % 1000, np.arange(1, dim + 1)) / 8 + learned[:, None]).astype(np.float32)


def _table(moment: int, dim: int = DIM) -> dict[int, list[float]]:
    keys = keys_at(moment)
    return dict(zip(keys.tolist(), rows_at(moment, keys, dim).tolist(), strict=True))


def _deeprec(path: Path, moment: int) -> Path:
    keys, export = keys_at(moment), Export()
    default = np.arange(8, dtype=np.float32).reshape(4, 2) + moment
    handle = deeprec_table(export, "item_emb", keys, rows_at(moment, keys, 2), default=default)
    return export.finish(path, [deeprec_lookup(export, handle, export.input("key"))], 2)


def _tfplus(path: Path, moment: int) -> Path:
    keys, export = keys_at(moment), Export()
    handle = tfplus_table(export, "scope/item", keys, rows_at(moment, keys), blacklist=[moment + 1])
    return export.finish(path, [tfplus_lookup(export, handle, export.input("key"))], DIM)


def _tfplus_strings(path: Path, moment: int) -> Path:
    export = Export()
    chosen = np.random.default_rng(moment).permutation(len(WORDS))[: 20 + moment]
    rows = rows_at(moment, chosen.astype(np.int64))
    handle = tfplus_table(export, "scope/word", WORDS[chosen], rows)
    ids = export.input("key", "string")
    return export.finish(path, [tfplus_lookup(export, handle, ids, "KvVariableGatherOrZerosV2", "string")], DIM)


def _tfra(path: Path, moment: int) -> Path:
    keys, export = keys_at(moment), Export()
    handle = tfra_table(export, "scope/item", keys, rows_at(moment, keys))
    default = export.const(np.full(DIM, 0.5, np.float32))
    return export.finish(path, [tfra_lookup(export, handle, export.input("key"), default)], DIM)


def _monolith(path: Path, moment: int) -> Path:
    export, table = MonolithExport(), _table(moment)
    shards = [{key: row for key, row in table.items() if key % 2 == shard} for shard in range(2)]
    handle = export.table("user", shards, dim=DIM)
    return export.finish(path, [export.lookup(handle, export.input("key"), DIM)], DIM)


def _tensornet(path: Path, moment: int) -> Path:
    export = Export()
    variable = tensornet_variable(export, "a/weights", 64, DIM)
    pull = tensornet_pull(export, 0, [variable], [export.input("key")])
    export.finish(path, [tensornet_gather(export, variable, f"{pull}:0", pull)], DIM)
    table = {key % 2**64: row for key, row in _table(moment).items()}
    sparse_files.write_tensornet(path / "sparse_table" / "0", tensornet_blocks(table))
    return path


def _hps(path: Path, moment: int) -> Path:
    export, keys = Export(), keys_at(moment)
    rows = hps_lookup(export, hps_init(export, "ps.json"), export.input("key"), "m", 0, DIM)
    export.finish(path, [rows], DIM)
    hps_configuration(path / "ps.json", {"m": [("wide", "model_0.sparse", DIM, 0.5)]})
    sparse_files.write_hps(path / "model_0.sparse", keys.tolist(), rows_at(moment, keys).tolist())
    return path


def _tensorflow(path: Path, moment: int) -> Path:
    import tensorflow as tf

    module = tf.Module()
    keys = np.arange(50)
    module.table = tf.Variable(rows_at(moment, keys), name="embedding")
    module.kernel = tf.Variable(_dense(moment)(DIM), name="kernel")
    module.steps = tf.Variable(np.int64(moment), name="steps")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="key")])
    def serve(key: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.gather(module.table, tf.math.floormod(key, 50))
        return {"rows": rows, "score": tf.sigmoid(tf.matmul(rows, module.kernel))}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


FAMILIES: dict[str, Callable[[Path, int], Path]] = {
    "deeprec": _deeprec,
    "hps": _hps,
    "monolith": _monolith,
    "tensorflow": _tensorflow,
    "tensornet": _tensornet,
    "tfplus": _tfplus,
    "tfplus_strings": _tfplus_strings,
    "tfra": _tfra,
}


def _dense(moment: int) -> Callable[[int], np.ndarray]:
    return lambda width: (np.float32(moment + 1) / np.arange(1, width + 1, dtype=np.float32)).reshape(-1, 1)


def export_at(family: str, path: Path, moment: int) -> Path:
    """Write the export of a moment."""
    with mock.patch.object(export_module, "dense_weights", _dense(moment)):
        return FAMILIES[family](path, moment)


def asked(family: str) -> np.ndarray:
    """Return keys [n] with all keys of all moments, and absent ones."""
    if family == "tfplus_strings":
        return np.array([*WORDS, b"absent"], object)
    return ASKED
