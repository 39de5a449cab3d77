# SPDX-License-Identifier: Apache-2.0
"""Tables whose rows are added or multiplied by codes of ids are served mapped, resident and tiered alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import processor
from graph_tools import optimize
from graph_tools.options import CutOptions
from graph_tools.readers import read_model
from helpers.models.embedding_tables import rows_of
from helpers.models.idiom_models import export_function

QUOTIENTS, REMAINDERS, DIM = 3000, 40, 12
IDS = np.random.default_rng(3).integers(0, QUOTIENTS * REMAINDERS, (300, 2))


def hashed(ids: Any, seed: int) -> Any:
    """Return the number of a row of the first table by a hash."""
    word = tf.bitcast(ids, tf.uint64) * tf.constant(0x9E3779B97F4A7C15 + 2 * seed, tf.uint64)
    word = tf.bitwise.bitwise_xor(word, tf.bitwise.right_shift(word, tf.constant(29, tf.uint64)))
    return tf.bitcast(tf.bitwise.bitwise_and(word, tf.constant(2047, tf.uint64)), tf.int64)


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A fused model, and the answers of the model with the rows as they are stored."""
    folder = tmp_path_factory.mktemp("codes")
    rows = [rows_of(count, DIM, seed=count) for count in (QUOTIENTS, REMAINDERS)]
    stored = [tf.cast(tf.cast(row, tf.bfloat16), tf.float32) if request.param == "bf16" else row for row in rows]
    held = [tf.Variable(row) for row in rows]

    def serve(ids: Any, tables: Any) -> dict[str, Any]:
        quotient, remainder = tf.math.floordiv(ids, REMAINDERS), tf.math.floormod(ids, REMAINDERS)
        found = [tf.gather(tables[0], quotient), tf.gather(tables[1], remainder)]
        others = tf.gather(tables[1], tf.math.floormod(ids + 1, REMAINDERS))
        hashes = tf.gather(tables[0], hashed(ids, 0)) + tf.gather(tables[0], hashed(ids, 1))
        return {
            "product": tf.reshape(found[0] * found[1], [-1, 2 * DIM]),
            "pooled": tf.reduce_mean(found[0] * others, 1),
            "sum": tf.reshape(found[0] + found[1], [-1, 2 * DIM]),
            "hashes": tf.reduce_sum(hashes, 1),
        }

    ids = tf.TensorSpec([None, 2], "int64", name="ids")
    source = export_function(folder / "in", lambda ids: serve(ids, held), [ids], held=held)
    options = CutOptions(embedding_dtype=request.param)
    optimize(source, folder / "out", options=options, precision="fp32", accept_weak_proof=True)
    ops = {node.op for node in read_model(folder / "out").graph}
    assert not ops & {"Mul", "AddV2", "ResourceGather", "Sum", "Mean", "FloorDiv", "FloorMod"}
    return folder / "out", {name: value.numpy() for name, value in serve(tf.constant(IDS), stored).items()}


@pytest.mark.parametrize("tier", ["mapped", "resident", "tiered"])
def test_every_tier_answers_as_tensorflow(served: tuple[Path, Any], tier: str, tmp_path: Path) -> None:
    artifact, expected = served
    tables: dict[str, Any] = {"tier": tier}
    tables |= {"resident": {"share_folder": str(tmp_path / "shared")}, "tiered": {"memory": 60_000}}.get(tier, {})
    with processor.Model(artifact, {"tables": tables, "warmup_runs": 1}) as model:
        for _ in range(2):
            found = model.run({"ids": IDS})
            for name, values in expected.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5, err_msg=name)
        assert (model.info["tables"] or {"tier": "mapped"})["tier"] == tier
