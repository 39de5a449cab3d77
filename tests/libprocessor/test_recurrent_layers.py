# SPDX-License-Identifier: Apache-2.0
"""`RecRecurrentLayer` against Keras."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from helpers.oracles.op_graphs import error_of, run_op, uniform

floats = partial(uniform, bound=0.5)
CELLS = {"gru": 3, "gru_reset_before": 3, "lstm": 4}

run = partial(run_op, "RecRecurrentLayer")


def layer(cell: str, units: int, **more: Any) -> Any:
    if cell == "lstm":
        return tf.keras.layers.LSTM(units, **more)
    return tf.keras.layers.GRU(units, reset_after=cell == "gru", **more)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1, 1, 1, 1), (67, 13, 8, 17)])
@pytest.mark.parametrize("cell", CELLS)
def test_layers_equal_keras(cell: str, sizes: tuple[int, int, int, int], threads: int) -> None:
    rows, length, dim, units = sizes
    x, mask = floats(rows, length, dim), np.random.default_rng(1).random((rows, length)) < 0.7
    n = CELLS[cell] * units
    weights = [floats(dim, n, seed=3), floats(units, n, seed=4)]
    biases = [floats(n, seed=5 + i) for i in range(2 if cell == "gru" else 1)]
    for backwards, masked in ((False, False), (True, False), (False, True)):
        keras = layer(cell, units, return_sequences=True, go_backwards=backwards)
        keras.build((None, length, dim))
        keras.set_weights([*weights, np.stack(biases) if cell == "gru" else biases[0]])
        expected = keras(x, mask=tf.constant(mask) if masked else None).numpy()
        attributes = {"cell": cell, "num_masks": int(masked), "num_biases": len(biases), "backwards": backwards}
        inputs = [x, *([mask] if masked else []), *weights, *biases]
        found = run(inputs, threads, sequences=True, **attributes)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(run(inputs, threads, **attributes), found[:, -1])


def test_lengths_equal_a_mask() -> None:
    x, weights = floats(3, 4, 2), [floats(2, 9, seed=1), floats(3, 9, seed=2)]
    lengths = np.array([4, 0, 2], np.int64)
    mask = np.arange(4) < lengths[:, None]
    attributes = {"cell": "gru", "num_masks": 1}
    by_length = run([x, lengths, *weights], Tmask=tf.int64, **attributes)
    np.testing.assert_array_equal(by_length, run([x, mask, *weights], **attributes))
    np.testing.assert_array_equal(by_length[1], 0)


def test_wrong_inputs_are_refused() -> None:
    refusal = partial(error_of, "RecRecurrentLayer")
    x, kernel, recurrent = floats(2, 3, 4), floats(4, 15), floats(5, 15)
    bias = floats(15)
    assert "expected [inputs, 4 * units] and [units, 4 * units]" in refusal([x, kernel, recurrent], cell="lstm")
    assert "x: shape [2,3,3], expected [rows, length, 4]" in refusal([x[:, :, :3], kernel, recurrent], cell="gru")
    assert "bias 0: shape [14], expected [15]" in refusal([x, kernel, recurrent, bias[1:]], cell="gru", num_biases=1)
    many = refusal([x, kernel, recurrent, bias, bias], cell="gru_reset_before", num_biases=2)
    assert "biases: 2 of them, expected at most 1 for 'gru_reset_before'" in many
    mask = np.ones((2, 2), bool)
    assert "expected a mask of 2 sequences of 3" in refusal([x, mask, kernel, recurrent], cell="gru", num_masks=1)


@pytest.mark.parametrize("cell", CELLS)
def test_batches_without_rows_or_positions_are_empty(cell: str) -> None:
    weights = [floats(2, 3 * CELLS[cell]), floats(3, 3 * CELLS[cell])]
    assert run([floats(0, 4, 2), *weights], cell=cell, sequences=True).shape == (0, 4, 3)
    np.testing.assert_array_equal(run([floats(2, 0, 2), *weights], cell=cell), np.zeros((2, 3), np.float32))
