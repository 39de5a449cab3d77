# SPDX-License-Identifier: Apache-2.0
"""Test passes over interactions: export, cut, fuse twice, and compare scores with the export's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Node, attribute
from graph_tools.graph.op_library import load_library
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import Pass
from graph_tools.verbs.cut import rewrite
from graph_tools.writer import write_saved_model
from helpers.graph_tools.pass_checks import KEY, all_answers
from helpers.graph_tools.stock_answers import Feeds
from helpers.models.idiom_models import export_function
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import LIBRARY

_PLAIN = {"Placeholder", "Const", "VarHandleOp", "ReadVariableOp", "Identity", "IdentityN"}
ROWS = (1, 2, 7)


@dataclass
class Fused:
    """Contain the result of a pass.

    Attributes
    ----------
    ops : Counter of str
        The ops that compute values.
    reasons : list of str
        Reasons why sites are unchanged.
    """

    model: Model
    ops: Counter[str]
    reasons: list[str]

    def node(self, op: str) -> Node:
        """Return the only node of an op."""
        (found,) = self.model.graph.of(op)
        return found

    def attributes(self, op: str, *names: str) -> list[Any]:
        """Return attributes of the only node of an op."""
        return [attribute(self.node(op), name) for name in names]


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return float32 values of both signs."""
    return (scale * np.random.default_rng(seed + len(shape)).normal(size=shape)).astype(np.float32)


def requests(**sizes: Any) -> list[Feeds]:
    """Return requests of 1, 2 and 7 rows; a size is a shape of float32, or a function from rows to an array."""
    return [
        {name: size(rows) if callable(size) else floats(rows, *size, seed=rows) for name, size in sizes.items()}
        for rows in ROWS
    ]


def fuse(tmp_path: Path, function: Callable[..., Any], feeds: list[Feeds], *passes: Pass, **held: Any) -> Fused:
    """Export a function of the requests' inputs, cut and fuse it, and compare its outputs for the requests."""
    import tensorflow as tf

    load_library(LIBRARY)
    source = tmp_path / "source"
    for name in ("source", "fused"):
        assert not (tmp_path / name).exists()
    specs = [tf.TensorSpec([None, *feed.shape[1:]], feed.dtype, name=name) for name, feed in feeds[0].items()]

    def named(*inputs: Any) -> dict[str, Any]:
        found = function(*inputs)
        return found if isinstance(found, dict) else {"y": found}

    export_function(source, named, specs, **held)
    return fuse_model(source, tmp_path / "fused", feeds, *passes)


def fuse_model(source: Path, out: Path, feeds: list[Feeds], *passes: Pass) -> Fused:
    """Cut and fuse a model, twice, and compare its outputs with the source's."""
    load_library(LIBRARY)
    model = read_model(source)
    rewrite(model, CutOptions(keep_graph_names=True))
    results = [pass_.apply(model) for pass_ in passes]
    names = set(model.graph.nodes)
    for pass_ in passes:
        assert pass_.apply(model).applied == 0
    assert set(model.graph.nodes) == names
    PruneUnreachable().apply(model)
    assert len(model.graph) == len(names), "a pass leaves what nothing uses"
    write_saved_model(model, out)
    for before, after in zip(all_answers(source, feeds, KEY), all_answers(out, feeds, KEY), strict=True):
        assert_same_outputs(after, before)
    ops = Counter(node.op for node in model.graph if node.op not in _PLAIN)
    return Fused(model, ops, [why for result in results for _, why in result.refused])
