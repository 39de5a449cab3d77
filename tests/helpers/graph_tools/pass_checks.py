# SPDX-License-Identifier: Apache-2.0
"""Test passes: export, rewrite twice, write, compare with stock TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.model import Model
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import Feeds, all_answers
from helpers.models.idiom_models import KEY, export_function, export_graph
from helpers.oracles.outputs import assert_same_outputs

ROWS = (1, 3, 7)


def floats(rows: int, *sizes: int, seed: int = 0) -> np.ndarray:
    """Return float32 values [rows, ...] of both signs."""
    return np.random.default_rng(seed + rows).normal(size=(rows, *sizes)).astype(np.float32)


def x_of(*sizes: int) -> list[Feeds]:
    """Return requests that feed `x`, float32 [rows, ...]."""
    return [{"x": floats(rows, *sizes)} for rows in ROWS]


def from_graph(path: Path, build: Callable[[Any, Any], Any], *sizes: int | None, dtype: str = "float32") -> Path:
    """Export a TF 1 graph x -> y; `build(v1, x)` returns y."""

    def both(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(dtype, [None, *sizes], name="x")
        return {"x": x}, {"y": v1.identity(build(v1, x), name="y")}

    return export_graph(path / "source", both)


def from_function(path: Path, function: Callable[[Any], Any], *sizes: int | None, **held: Any) -> Path:
    """Export a function x -> y as TF 2 does."""
    import tensorflow as tf

    specs = [tf.TensorSpec([None, *sizes], tf.float32, name="x")]
    return export_function(path / "source", lambda x: {"y": function(x)}, specs, **held)


def rewritten(source: Path, *passes: Pass) -> tuple[Model, list[PassResult]]:
    """Read a model, prune it, run passes, and check that running the last one again changes nothing."""
    model = read_model(source)
    PruneUnreachable().apply(model)
    results = [pass_.apply(model) for pass_ in passes]
    names = set(model.graph.nodes)
    assert passes[-1].apply(model).applied == 0
    assert set(model.graph.nodes) == names
    assert all(why for _, why in model.graph.removed.values())
    return model, results


def checked(
    source: Path, feeds: list[Feeds], *passes: Pass, exact: bool = True, signature: str = KEY
) -> tuple[Model, PassResult]:
    """Call `rewritten`, write the model and compare its outputs with the source's."""
    model, results = rewritten(source, *passes)
    out = next(path for path in map(source.with_name, map("out_{}".format, range(9))) if not path.exists())
    write_saved_model(model, out)
    for before, after in zip(all_answers(source, feeds, signature), all_answers(out, feeds, signature), strict=True):
        assert_same_outputs(after, before, exact=exact)
    return model, results[-1]


def ops_of(model: Model) -> set[str]:
    """Return the names of the ops in a model's graph."""
    return {node.op for node in model.graph}


__all__ = ["KEY", "all_answers", "checked", "floats", "from_function", "from_graph", "ops_of", "rewritten", "x_of"]
