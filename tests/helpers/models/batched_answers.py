# SPDX-License-Identifier: Apache-2.0
"""Provide models whose requests are batched, and compare their outputs with those of single requests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import processor
from helpers.oracles.outputs import assert_same_outputs

Inputs = dict[str, Any]


def batching_config(mode: str, **more: object) -> dict[str, Any]:
    """Return a configuration with one thread for ops; `more` are keys of it or of its batching."""
    batching = {key: more.pop(key) for key in ("max_rows", "max_wait_us") if key in more}
    threads = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
    return {**threads, "batching": {"mode": mode, **batching}, **more}


def batches(model: processor.Model) -> dict[str, int]:
    """Count runs by their number of requests."""
    found: dict[str, int] = model.stats()["batching"]["requests"]["buckets"]
    return found


def same_answers(
    path: Path,
    requests: list[Inputs],
    signature: str | None = None,
    *,
    atol: float = 1e-5,
    rounds: int = 3,
    model: processor.Model | None = None,
) -> processor.Model:
    """Run all requests at once, in batches, and compare with their outputs alone. Repeats, because batches vary."""
    with ThreadPoolExecutor(len(requests)) as pool, processor.Model(path, batching_config("off")) as alone:
        rows = sum(len(next(iter(request.values()))) for request in requests)
        model = model or processor.Model(path, batching_config("timed", max_rows=rows, max_wait_us=300_000))
        for _ in range(rounds):
            futures = [pool.submit(model.run, request, signature) for request in requests]
            for request, future in zip(requests, futures, strict=True):
                assert_same_outputs(future.result(60), alone.run(request, signature), atol=atol)
        return model


def build_batched(path: Path, serve: Callable[..., Any], spec: list[Any]) -> Path:
    """Save `serve(tf, module, x)`; `module.counter` is a variable with value 0."""
    import tensorflow as tf

    module = tf.Module()
    module.counter = tf.Variable(0.0)
    module.serve = tf.function(lambda x: serve(tf, module, x), input_signature=spec)
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path
