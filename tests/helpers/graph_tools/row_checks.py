# SPDX-License-Identifier: Apache-2.0
"""Test user/item splits: export, cut, split twice, and compare scores for all forms of a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Graph, Node
from graph_tools.model import Model
from graph_tools.options import CutOptions, matching
from graph_tools.passes.fuse.split_user_items import COLLAPSE, EXPAND, SplitUserItems
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import PassResult
from graph_tools.verbs.cut import rewrite
from graph_tools.writer import write_saved_model
from helpers.graph_tools.pass_checks import all_answers
from helpers.graph_tools.stock_answers import Feeds
from helpers.models.idiom_models import KEY


def split(source: Path, *user: str) -> tuple[Model, PassResult]:
    """Cut a model, split it, and check that splitting it again changes nothing."""
    model = read_model(source)
    rewrite(model, CutOptions(keep_graph_names=True))
    before = set(model.graph.nodes)
    pass_ = SplitUserItems(user)
    result = pass_.apply(model)
    names = set(model.graph.nodes)
    if not result.applied:
        assert names == before
    assert not pass_.apply(model).applied
    assert set(model.graph.nodes) == names
    assert all(why for _, why in model.graph.removed.values())
    assert result.nodes_after == len(model.graph)
    return model, result


def forms(feeds: Feeds, user: Iterable[str]) -> list[tuple[Feeds, Feeds]]:
    """Return the requests: different user rows, equal rows, and one row for the split model only."""
    user = set(user)
    rows = max((len(value) for key, value in feeds.items() if key not in user and np.ndim(value)), default=0)
    once = {key: value[:1] if key in user else value for key, value in feeds.items()}
    equal = {key: np.repeat(value, rows, 0) if key in user else value for key, value in once.items()}
    return [(feeds, feeds), (equal, equal), (equal, once)]


def checked(
    source: Path, feeds: Sequence[Feeds], *patterns: str, signature: str = KEY, out: Path | None = None
) -> tuple[Model, PassResult]:
    """Split a model and compare its scores with those of the source, for all forms of the requests.

    The split model is written to `out`, or to the folder of the source.
    """
    model, result = split(source, *patterns)
    assert result.applied, result.refused
    user = matching(patterns, model.signatures[signature].inputs)
    asked = [form for feed in feeds for form in forms(feed, user)]
    stock = out or source.with_name("stock")
    _write_stock(model, stock, signature)
    wanted = all_answers(source, [request for request, _ in asked], signature)
    found = all_answers(stock, [collapsed(request, user) for _, request in asked], signature)
    for before, after in zip(wanted, found, strict=True):
        assert before.keys() == after.keys()
        for key, value in before.items():
            assert (value.dtype, value.shape) == (after[key].dtype, after[key].shape), key
            if value.dtype.kind in "fc":
                np.testing.assert_allclose(after[key], value, rtol=1e-5, atol=1e-5, err_msg=key)
            else:
                np.testing.assert_array_equal(after[key], value, err_msg=key)
    return model, result


def collapsed(feeds: Feeds, user: Iterable[str]) -> Feeds:
    """Compute RecCollapseRows."""
    parts = [feeds[key] for key in user]
    equal = all(len(part) and bool(np.all(part == part[:1])) for part in parts)
    return feeds | {key: feeds[key][:1] for key in user} if equal else feeds


def _write_stock(model: Model, out: Path, signature: str) -> None:
    """Write a split model with TensorFlow's ops instead of libprocessor's; its requests are already collapsed."""
    copy = Model(**vars(model))
    copy.graph = Graph.from_graph_def(model.graph.to_graph_def())
    copy.signatures = {signature: model.signatures[signature]}
    for node in copy.graph.of(COLLAPSE):
        for port, source in enumerate(node.inputs[:-1]):
            copy.graph.replace(node.output(port), source)
        copy.graph.remove(node.name, "the requests are collapsed")
    for node in copy.graph.of(EXPAND):
        _expand(copy.graph, node)
    write_saved_model(copy, out)


def _expand(graph: Graph, node: Node) -> None:
    """Gather row 0 as often as `like` has rows, or each row once."""
    value, like = node.inputs
    sizes = [_rows(graph, tensor, attrs) for tensor, attrs in ((value, node.attrs["T"]), (like, node.attrs["Tlike"]))]
    zero, one = (graph.add_const(np.array(each, np.int32), f"{node.name}/{each}") for each in (0, 1))
    numbers = graph.add("Range", [zero, sizes[1], one], attrs={"Tidx": np.int32}).output()
    last = graph.add("Sub", [sizes[0], one], attrs={"T": np.int32}).output()
    picked = graph.add("Minimum", [numbers, last], attrs={"T": np.int32}).output()
    attrs = {"Tparams": node.attrs["T"], "Tindices": np.int32, "Taxis": np.int32}
    graph.become(node, "GatherV2", [value, picked, zero], attrs)


def _rows(graph: Graph, output: Any, dtype: Any) -> Any:
    shape = graph.add("Shape", [output], attrs={"T": dtype, "out_type": np.int32}).output()
    zero = graph.add_const(np.array(0, np.int32))
    attrs = {"Tparams": np.int32, "Tindices": np.int32, "Taxis": np.int32}
    return graph.add("GatherV2", [shape, zero, zero], attrs=attrs).output()
