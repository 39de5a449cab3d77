# SPDX-License-Identifier: Apache-2.0
"""Shorten `tf.nn.safe_embedding_lookup_sparse` with weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graph_tools.graph import Graph, Node, Output, attribute, is_constant, operand, skip, source
from graph_tools.model import Model
from graph_tools.recognition.lookups.safe_lookup import (
    MASK,
    Finders,
    Rows,
    find_rows,
    kept,
    peel_reshapes,
    zeroed,
)
from graph_tools.rewriting.add_nodes import add_column, add_picked, add_places, add_zeroed
from graph_tools.rewriting.matcher import GraphFacts, Match, Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import const, op, value
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output
from graph_tools.rewriting.sizes import drop_same_shape_reshapes

_WHY = "a shorter weighted safe_embedding_lookup_sparse gives the same rows"


@dataclass
class Weighted:
    """A weighted lookup.

    Attributes
    ----------
    ids_fill, weights_fill : Node
        SparseFillEmptyRows of ids and of weights.
    indices, ids, weights, shape : Output
        Their values before entries are dropped and empty rows filled; ids and weights have the same `shape` and
        `indices`.
    checks : list of Output or Node
        Masks over all entries, each of which drops some; a Node is the comparison `weights > 0`.
    rows : Rows
    gathered : Node
        The GatherV2 that returns the row of each id.
    column : Output [n, 1]
        The weights, ready to multiply rows.
    """

    ids_fill: Node
    weights_fill: Node
    indices: Output
    ids: Output
    weights: Output
    shape: Output
    checks: list[Output | Node]
    rows: Rows
    gathered: Node
    column: Output


def _is_column(finders: Finders, output: Output) -> bool:
    sizes = finders.sizes.of(output)
    return sizes is not None and len(sizes) == 2 and sizes[1] == 1


_WEIGHTS_FILL, _IDS_FILL = (op("SparseFillEmptyRows", ..., waits=True) for _ in range(2))
_COMBINED, _WEIGHTS = value(), value()
_COLUMN = op("Reshape", _WEIGHTS_FILL.output(1), ..., waits=True).where(_is_column)
_GATHERED = op("GatherV2", ..., waits=True)
_PRODUCT = op("Mul", _GATHERED, _COLUMN, waits=True)
_POSITIVE = op("Greater", kept(_WEIGHTS), const(0), waits=True)
_ZEROED = Pattern(zeroed(_COMBINED, _IDS_FILL))
_INDICES, _VALUES = value(), value()
_KEPT_INDICES, _KEPT_VALUES = Pattern(kept(_INDICES)), Pattern(kept(_VALUES))


class CollapseWeightedLookup(SitePass[Weighted]):
    """Drop the entries of a weighted lookup by one mask, and look up ids without Unique.

    Before: `ids ≥ 0 → Where, Reshape, GatherV2 …` and `weights > 0 → Where, Reshape, GatherV2 …`, each once for ids and
    once for weights, then `SparseFillEmptyRows` of each, `Unique → ResourceGather → GatherV2`, `Mul`, `SegmentSum`,
    and a tiled `Select`: some 100 nodes.
    After: one `Where` for both and a GatherNd for each; the arithmetic on rows and weights stays as it is.
    """

    name = "collapse_weighted_lookup"

    def candidates(self, model: Model) -> Iterable[str]:
        self._written = model.written_variables()
        fills = model.graph.of("SparseFillEmptyRows")
        return [node.name for node in fills if attribute(node, "T").is_floating]

    def match(self, model: Model, site: str) -> Outcome[Weighted]:
        found = _find_weighted_lookup(model, model.graph[site])
        if not isinstance(found, Found):
            return found
        handle = found.value.rows.handle(model.graph)
        if handle is not None and handle.node in self._written:
            return Refused(f"variable '{handle.node}' is written while it is served")
        return found

    def rewrite(self, model: Model, site: str, found: Weighted) -> None:
        graph = model.graph
        ids_dtype, dtype = attribute(found.ids_fill, "T"), attribute(found.weights_fill, "T")
        indices, ids, weights = found.indices, found.ids, found.weights
        mask = _add_mask(model, found, site)
        if mask is not None:
            places = add_places(graph, mask, f"{site}/kept")
            indices = add_picked(graph, indices, places, np.int64, f"{site}/indices")
            ids = add_picked(graph, ids, places, ids_dtype, f"{site}/ids")
            weights = add_picked(graph, weights, places, dtype, f"{site}/weights")
        fills = []
        for old, values, kind in ((found.ids_fill, ids, ids_dtype), (found.weights_fill, weights, dtype)):
            inputs = [indices, values, found.shape, old.inputs[3]]
            new = graph.add("SparseFillEmptyRows", inputs, name=f"{old.name}/filled", attrs={"T": kind})
            fills.append(new)
        column = add_column(graph, fills[1].output(1), dtype, f"{site}/column")
        replace_output(model, found.column, column, dtype, _WHY)
        rows = found.rows.add_gather(graph, fills[0].output(1), found.rows.number_dtype, f"{site}/rows")
        replace_output(model, found.gathered.output(), rows, attribute(found.gathered, "Tparams"), _WHY)
        _shorten_select(model, found.ids_fill)
        for old, new in zip((found.ids_fill, found.weights_fill), fills, strict=True):
            for port, kind in ((0, np.int64), (1, attribute(new, "T")), (2, np.bool_), (3, np.int64)):
                if old.name in graph:
                    replace_output(model, old.output(port), new.output(port), kind, _WHY)


def _find_weighted_lookup(model: Model, weights_fill: Node) -> Outcome[Weighted]:
    graph, finders = model.graph, Finders(model)
    product = Match(finders, {_WEIGHTS_FILL: weights_fill.output()}).above(_PRODUCT)
    if product is None:
        return NoMatch()
    gathered, column = product.node(_GATHERED), product[_COLUMN]
    rows = find_rows(model, gathered.inputs[0], gathered.inputs[1], finders)
    if not isinstance(rows, Found):
        return rows
    ids_fill = source(graph, rows.value.ids, "SparseFillEmptyRows")
    if ids_fill is None or skip(graph, rows.value.ids).port != 1:
        return Refused(f"ids '{rows.value.ids}' are not filled, expected SparseFillEmptyRows as for their weights")
    ids, weights = _entries_before_drops(finders, ids_fill), _entries_before_drops(finders, weights_fill)
    shapes = [operand(graph, fill, 2) for fill in (ids_fill, weights_fill)]
    if ids[0] != weights[0] or shapes[0] != shapes[1] or len(ids[2]) != len(weights[2]):
        return Refused(f"ids of '{ids_fill.name}' and weights of '{weights_fill.name}' are not of one sparse tensor")
    if ids[2] != weights[2]:
        return Refused(f"ids of '{ids_fill.name}' and weights of '{weights_fill.name}' are dropped by different masks")
    checks = _checks_of(finders, ids[2], weights[1])
    if not isinstance(checks, Found):
        return checks
    indices, shape, _ = peel_reshapes(graph, ids[0], shapes[0], finders.sizes)
    return Found(
        Weighted(ids_fill, weights_fill, indices, ids[1], weights[1], shape, checks.value, rows.value, gathered, column)
    )


def _entries_before_drops(facts: GraphFacts, fill: Node) -> tuple[Output, Output, list[Output]]:
    """Return indices and values of a sparse tensor before entries were dropped, and the masks, last one first."""
    indices, values = (facts.origin(output) for output in fill.inputs[:2])
    masks: list[Output] = []
    while isinstance(dropped := _KEPT_INDICES.match(facts, indices), Found):
        mask = dropped.value[MASK]
        of_values = _KEPT_VALUES.match(facts, values, {MASK: mask})
        if not isinstance(of_values, Found):
            break
        indices, values = dropped.value[_INDICES], of_values.value[_VALUES]
        masks.append(mask)
    return indices, values, masks


def _checks_of(facts: GraphFacts, masks: list[Output], weights: Output) -> Outcome[list[Output | Node]]:
    """Return the masks, each over all entries; a Node stands for `weights > 0` of entries that an earlier mask kept."""
    if len(masks) > 2:
        return Refused(f"entries are dropped {len(masks)} times, expected two at most")
    checks: list[Output | Node] = list(masks[-1:])
    if len(masks) == 2:
        positive = Pattern(_POSITIVE).match(facts, masks[0], {MASK: masks[1]})
        if not isinstance(positive, Found):
            return Refused(f"mask '{masks[0]}' is not one of weights above zero")
        if positive.value[_WEIGHTS] != weights:
            return Refused(f"mask '{masks[0]}' compares other weights than '{weights}'")
        checks.append(positive.value.node(_POSITIVE))
    return Found(checks)


def _add_mask(model: Model, found: Weighted, name: str) -> Output | None:
    """Add the mask of the entries that stay; return None if all stay."""
    graph, ranges = model.graph, Finders(model).ranges
    parts: list[Output] = []
    for check in found.checks:
        if isinstance(check, Node):
            inputs = [found.weights, check.inputs[1]]
            parts.append(
                graph.add("Greater", inputs, name=f"{name}/positive", attrs={"T": attribute(check, "T")}).output()
            )
        else:
            parts += [
                factor
                for factor in _factors(graph, check)
                if not _keeps_every_entry(graph, factor, found.ids, ranges.is_nonnegative)
            ]
    mask = parts[0] if parts else None
    for part in parts[1:]:
        assert mask is not None
        mask = graph.add("LogicalAnd", [mask, part], name=f"{name}/mask").output()
    return mask


def _factors(graph: Graph, mask: Output) -> list[Output]:
    node = graph[skip(graph, mask).node]
    if node.op == "LogicalAnd":
        return [factor for each in node.inputs for factor in _factors(graph, each)]
    return [skip(graph, mask)]


def _keeps_every_entry(graph: Graph, check: Output, ids: Output, nonnegative: object) -> bool:
    """Return whether a check keeps every entry."""
    node = graph[check.node]
    if node.op in {"Fill", "OnesLike"}:
        return node.op == "OnesLike" or is_constant(graph, node.inputs[1], True)
    if node.op == "GreaterEqual" and operand(graph, node, 0) == ids and is_constant(graph, node.inputs[1], 0):
        return bool(nonnegative(ids))  # type: ignore[operator]
    return False


def _shorten_select(model: Model, fill: Node) -> None:
    """Give the Select that zeroes empty rows a condition that broadcasts, instead of a tiled one."""
    graph, facts = model.graph, GraphFacts(model.graph)
    for node in _ZEROED.sites(graph):
        outcome = _ZEROED.match(facts, node.output(), {_IDS_FILL: fill.output()})
        if isinstance(outcome, Found):
            dtype = attribute(node, "T")
            made = add_zeroed(graph, outcome.value[_COMBINED], fill.output(2), dtype, node.name)
            replace_output(model, node.output(), made, dtype, _WHY)
            drop_same_shape_reshapes(model, made, _WHY)
