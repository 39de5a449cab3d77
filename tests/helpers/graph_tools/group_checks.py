# SPDX-License-Identifier: Apache-2.0
"""Test embedding groups: export, cut, fuse, and compare each output with NumPy's result for the plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Node, Output
from graph_tools.graph.op_library import load_library
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut import run_passes, serving_passes
from graph_tools.passes.fuse.fuse_embedding_groups import FuseEmbeddingGroups
from graph_tools.plans.embedding_plan import EmbeddingPlan
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import PassResult
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import Feeds
from helpers.models.idiom_models import KEY
from helpers.oracles import embedding_reference

_SHAPES = {"Identity", "IdentityN", "Reshape"}


@dataclass
class Fused:
    """Contain a model before and after groups were made.

    Attributes
    ----------
    plain : Path
        The cut model, with the names of its nodes.
    model : Model
    result : PassResult
    """

    plain: Path
    model: Model
    result: PassResult

    @property
    def groups(self) -> list[tuple[Node, EmbeddingPlan]]:
        return embedding_reference.groups(self.model)

    @property
    def plan(self) -> EmbeddingPlan:
        """Return the plan of the only group."""
        return embedding_reference.group(self.model)[1]

    @property
    def features(self) -> list[str]:
        """Return the input tensors of the only group."""
        return [
            feature.node
            for feature in embedding_reference.features_of(self.model, embedding_reference.group(self.model)[0])
        ]

    @property
    def tables(self) -> list[Any]:
        """Return the tables of the only group."""
        return embedding_reference.tables_of(self.model, embedding_reference.group(self.model)[0])

    def ops(self) -> set[str]:
        """Return the remaining ops, except groups and ops that run before any request."""
        known = {"Const", "Placeholder", "RecEmbeddingTable", "RecEmbeddingGroup", "VarHandleOp", *_SHAPES}
        return {node.op for node in self.model.graph} - known

    def check(self, *feeds: Feeds, exact: bool = True, signature: str = KEY) -> None:
        """Compare every output of a group, by NumPy and by its kernel, with stock TensorFlow's."""
        for feed in feeds:
            self._check(feed, exact, signature)
        load_library()
        out = self.plain.with_name(f"{self.plain.name}_fused")
        if not out.exists():
            write_saved_model(self.model, out)
        names = {key: output.tensor for key, output in self.model.signatures[signature].outputs.items()}
        for feed in feeds:
            wanted = _answers(self.plain, feed, list(names.values()), signature)
            found = _answers(out, feed, list(names.values()), signature)
            for key, a, b in zip(names, wanted, found, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                _compare(b, a, exact, key)

    def refuses(self, feeds: Feeds) -> None:
        """Check that both stock TensorFlow and the plan refuse a request."""
        import tensorflow as tf

        with pytest.raises(tf.errors.InvalidArgumentError):
            _answers(self.plain, feeds, [output.tensor for output in self.model.signatures[KEY].outputs.values()], KEY)
        with pytest.raises(embedding_reference.AbsentKeyError):
            self._check(feeds, True, KEY)

    def _check(self, feeds: Feeds, exact: bool, signature: str) -> None:
        outputs = self.model.signatures[signature].outputs
        made: dict[str, list[np.ndarray]] = {}
        compared = 0
        for key, endpoint in outputs.items():
            source = _source(self.model, endpoint.tensor)
            node = self.model.graph[source.node]
            if node.op != embedding_reference.OP:
                continue
            if node.name not in made:
                made[node.name] = self._computed(node, feeds, signature)
            (wanted,) = _answers(self.plain, feeds, [endpoint.tensor], signature)
            found = made[node.name][source.port]
            assert found.size == wanted.size
            _compare(found.reshape(wanted.shape), wanted, exact, key)
            compared += 1
        assert compared

    def _computed(self, node: Node, feeds: Feeds, signature: str) -> list[np.ndarray]:
        plan = next(plan for group, plan in self.groups if group is node)
        values = _answers(self.plain, feeds, embedding_reference.features_of(self.model, node), signature)
        return embedding_reference.computed(plan, values, embedding_reference.tables_of(self.model, node))


def _answers(path: Path, feeds: Feeds, outputs: list[Output], signature: str) -> list[np.ndarray]:
    """Run a SavedModel and return tensors of its graph."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        served = v1.saved_model.load(session, ["serve"], str(path)).signature_def[signature]
        fed = {served.inputs[key].name: value for key, value in feeds.items()}
        found: list[np.ndarray] = session.run([str(each) for each in outputs], fed)
        return found


def _compare(found: np.ndarray, wanted: np.ndarray, exact: bool, what: str) -> None:
    if exact:
        np.testing.assert_array_equal(found, wanted, err_msg=what)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=what)


def fused(source: Path, **options: Any) -> Fused:
    """Cut a model, write it, make groups, and check that making them again changes nothing."""
    model = read_model(source)
    run_passes(model, serving_passes(CutOptions(keep_graph_names=True, **options)))
    plain = source.with_name(f"{source.name}_plain")
    write_saved_model(model, plain)
    return Fused(plain, model, fuse_model(model))


def fuse_model(model: Model) -> PassResult:
    """Make groups, and check that making them again changes nothing."""
    result = FuseEmbeddingGroups().apply(model)
    assert result.nodes_after == len(model.graph)
    assert all(why for _, why in model.graph.removed.values())
    names = set(model.graph.nodes)
    again = FuseEmbeddingGroups().apply(model)
    assert again.applied == 0
    assert set(model.graph.nodes) == names
    for node, plan in embedding_reference.groups(model):
        tables = embedding_reference.tables_of(model, node)
        assert all(spec.problem() is None for spec in tables)
        plan.check(len(node.inputs) - len(tables), [spec.dim for spec in tables])
    return result


def strings(*values: str | bytes) -> np.ndarray:
    """Return a vector of strings."""
    made = np.empty(len(values), object)
    made[:] = [value.encode() if isinstance(value, str) else value for value in values]
    return made


def _source(model: Model, output: Output) -> Output:
    """Return the output of a group that a tensor equals, apart from its shape."""
    node = model.graph[output.node]
    while node.op in _SHAPES:
        output = node.inputs[output.port if node.op == "IdentityN" else 0]
        node = model.graph[output.node]
    return output
