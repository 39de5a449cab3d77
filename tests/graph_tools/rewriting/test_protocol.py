# SPDX-License-Identifier: Apache-2.0
"""Every pass states what it ensures, and tests that apply a pass check it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from graph_tools.graph import Graph
from graph_tools.model import Model
from graph_tools.options import CutOptions, FuseOptions
from graph_tools.passes.cut import serving_passes
from graph_tools.passes.fuse import fusing_passes
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome
from graph_tools.rewriting.protocol import Pass, PassResult, SitePass

PASSES = {pass_.name: pass_ for pass_ in [*serving_passes(CutOptions()), *fusing_passes(FuseOptions())]}


class SquareOnce(SitePass[str]):
    """Rename the op of nodes; `forgets` counts a node as rewritten but leaves it as it is."""

    name = "square_once"

    def __init__(self, forgets: bool) -> None:
        self.forgets = forgets

    def candidates(self, model: Model) -> Iterable[str]:
        return list(model.graph.nodes)

    def match(self, model: Model, site: str) -> Outcome[str]:
        return Found("Squared") if model.graph[site].op == "Square" else NoMatch()

    def rewrite(self, model: Model, site: str, found: str) -> None:
        if not self.forgets:
            model.graph[site].op = found


def _squares() -> Model:
    graph = Graph()
    graph.add("Square", name="a")
    graph.add("Square", name="b")
    return Model(Path("source"), "GraphDef", graph, {})


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_describes_what_it_ensures(name: str) -> None:
    assert type(PASSES[name]).ensures.__doc__


def test_pass_without_a_promise_cannot_be_constructed() -> None:
    class Silent(Pass):
        name = "silent"

        def process(self, model: Model, result: PassResult) -> None: ...

    with pytest.raises(TypeError, match="ensures"):
        Silent()  # type: ignore[abstract]


def test_site_pass_ensures_that_no_site_is_left() -> None:
    model = _squares()
    assert list(SquareOnce(forgets=False).ensures(model)) == ["a", "b"]
    assert SquareOnce(forgets=False).apply(model).at == ["a", "b"]
    assert list(SquareOnce(forgets=False).ensures(model)) == []


def test_site_pass_does_not_ensure_anything_about_sites_to_leave_alone() -> None:
    model, pass_ = _squares(), SquareOnce(forgets=False)
    pass_.left_alone = {"a": "it changes scores"}
    assert pass_.apply(model).refused == [("a", "it changes scores")]
    assert list(pass_.ensures(model)) == []


def test_broken_promise_fails_the_test_that_applies_the_pass() -> None:
    with pytest.raises(AssertionError, match="'square_once' does not ensure"):
        SquareOnce(forgets=True).apply(_squares())
