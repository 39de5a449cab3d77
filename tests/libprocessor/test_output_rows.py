# SPDX-License-Identifier: Apache-2.0
"""Models whose rows depend on each other are never batched: by their graph, by trials, or by a check that finds it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models.batched_answers import Inputs, batches, build_batched, same_answers

SMALL = 1e-4  # of the scores of a model that predicts rare clicks

DEPENDENT: dict[str, Callable[..., Any]] = {
    "mean": lambda tf, module, x: {"y": tf.reduce_mean(x)},
    "less the mean": lambda tf, module, x: {"y": SMALL * (x - tf.reduce_mean(x, axis=0))},
    "softmax": lambda tf, module, x: {"y": SMALL * tf.nn.softmax(x, axis=0)},
    "sorted": lambda tf, module, x: {"y": SMALL * tf.sort(x, axis=0)},
    "fixed": lambda tf, module, x: {"y": x + 1.0},
}


def opaque(serve: Callable[..., Any]) -> Callable[..., Any]:
    """Hide a graph in a loop, through which rows are not followed."""

    def looped(tf: Any, module: Any, x: Any) -> dict[str, Any]:
        count = tf.cast(module.counter, tf.int32) + 1
        shapes = (tf.TensorShape([]), tf.TensorShape([None, 3]))

        def step(i: Any, y: Any) -> tuple[Any, Any]:
            return i + 1, serve(tf, module, y)["y"]

        return {"y": tf.while_loop(lambda i, y: i < count, step, (0, x), shape_invariants=shapes)[1]}

    return looped


def rare(size: int = 6) -> list[Inputs]:
    numbers = np.random.default_rng(7).permutation(6 * size).astype(np.float32)
    return [{"x": part.reshape(2, 3)} for part in numbers.reshape(size, 6)]


@pytest.mark.parametrize("kind", DEPENDENT)
def test_models_whose_rows_depend_on_others_run_alone(tmp_path: Path, kind: str) -> None:
    import tensorflow as tf

    spec = tf.TensorSpec([2 if kind == "fixed" else None, 3], tf.float32, name="x")
    path = build_batched(tmp_path / "dependent", DEPENDENT[kind], [spec])
    with same_answers(path, rare(), atol=0) as model:
        assert set(batches(model)) == {"1"}
        assert model.stats()["batching"]["repeated"] == 0  # the graph says so: nothing is tried
        assert model.info["batching_rows"]["serving_default"]["rows"] == "dependent"


@pytest.mark.parametrize("kind", ["less the mean", "softmax", "sorted"])
def test_a_difference_below_all_absolute_limits_is_seen(tmp_path: Path, kind: str) -> None:
    import tensorflow as tf

    path = build_batched(tmp_path / "hidden", opaque(DEPENDENT[kind]), [tf.TensorSpec([None, 3], tf.float32, name="x")])
    with same_answers(path, rare(), atol=0) as model:
        assert set(batches(model)) == {"1"}
        assert model.stats()["batching"]["repeated"] == 1
        found = model.info["batching_rows"]["serving_default"]
        assert found["rows"] == "dependent"
        assert "outputs do not follow the rows" in found["reason"]


def test_unproved_rows_take_several_trials(tmp_path: Path) -> None:
    import tensorflow as tf

    path = build_batched(
        tmp_path / "loop", opaque(lambda tf, m, x: {"y": x * SMALL}), [tf.TensorSpec([None, 3], tf.float32, name="x")]
    )
    with same_answers(path, rare(), atol=0, rounds=6) as model:
        assert model.stats()["batching"]["repeated"] == 4
        assert max(map(int, batches(model))) > 1
        assert model.info["batching_rows"]["serving_default"]["rows"] == "tried"


def test_copies_of_one_request_are_no_trial(tmp_path: Path) -> None:
    """A load generator that repeats one request, and a sort, which changes nothing among copies."""
    import tensorflow as tf

    path = build_batched(
        tmp_path / "sorts", opaque(DEPENDENT["sorted"]), [tf.TensorSpec([None, 3], tf.float32, name="x")]
    )
    copies: list[Inputs] = [{"x": np.full((2, 3), 5, np.float32)}] * 6
    with same_answers(path, copies, rounds=6) as model:
        assert max(map(int, batches(model))) > 1
        same_answers(path, rare(), atol=0, model=model)
        assert model.info["batching_rows"]["serving_default"]["rows"] == "dependent"


def test_a_late_difference_is_found_by_a_check(tmp_path: Path) -> None:
    """Rows are mixed only where one is above 100, which no trial has seen."""
    import tensorflow as tf

    def serve(tf: Any, module: Any, x: Any) -> dict[str, Any]:
        return {"y": tf.cond(tf.reduce_max(x) > 100, lambda: tf.cumsum(x), lambda: tf.identity(x))}

    path = build_batched(tmp_path / "late", opaque(serve), [tf.TensorSpec([None, 3], tf.float32, name="x")])
    with same_answers(path, rare(), rounds=6) as model, ThreadPoolExecutor(6) as pool:
        assert model.stats()["batching"]["differed"] is False
        late: list[Inputs] = [{"x": np.full((1, 3), 200 + i, np.float32)} for i in range(6)]
        model.set_batching("timed", max_rows=6, max_wait_us=50_000)
        for _ in range(1000):
            list(pool.map(model.run, late))
            if model.stats()["batching"]["differed"]:
                break
        stats = model.stats()["batching"]
        assert stats["differed"] is True
        assert stats["checks"] >= 1
        found = model.info["batching_rows"]["serving_default"]
        assert found["rows"] == "dependent"
        assert "output 'y' of a batched request: differs" in found["reason"]
        same_answers(path, late, model=model)  # each alone from now on
