# SPDX-License-Identifier: Apache-2.0
"""Recognize sparse tensors that are made from dense columns: `x → NotEqual(missing) → Where → GatherNd`."""

from __future__ import annotations

from dataclasses import dataclass

from graph_tools.graph import Node, Output, skip
from graph_tools.model import Model
from graph_tools.recognition.lookups.safe_lookup import Finders, is_zeros
from graph_tools.rewriting.chains import chain_between
from graph_tools.rewriting.matcher import Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import const, op, value

_DENSE = value()
_ZEROS = value().where(lambda facts, output: is_zeros(facts.graph, output))
_MISSING = _ZEROS | const(accepts=lambda mark: mark.size == 1)
_PRESENT = op("NotEqual", _DENSE, _MISSING, waits=True)
_PLACES = op("Where", _PRESENT, waits=True)
_VALUES = op("GatherNd", _DENSE, _PLACES, waits=True)
_PATTERN = Pattern(_PLACES)


@dataclass
class Column:
    """A sparse tensor that is made from a dense column.

    Attributes
    ----------
    dense : Output [...]
    present : Output [...] bool
        False at values that mark a missing value.
    values : Output [n]
        The values that are present.
    chain : list of Node
        The nodes from `values` to ids.
    """

    dense: Output
    present: Output
    values: Output
    chain: list[Node]


def find_column(model: Model, indices: Output, ids: Output, shape: Output, finders: Finders) -> Outcome[Column]:
    """Recognize the dense column from which a sparse tensor is made.

    Parameters
    ----------
    model : Model
    indices, ids, shape : Output
        The sparse tensor; `ids` may be computed from the column's values, element by element.
    finders : Finders
    """
    outcome = _PATTERN.match(finders, indices)
    if not isinstance(outcome, Found):
        return outcome
    match, graph = outcome.value, model.graph
    dense, sizes = match[_DENSE], finders.sizes.of(match[_DENSE])
    if sizes is None:
        return NoMatch()
    if finders.sizes.vector(shape) != sizes:
        return Refused(f"shape '{shape}' is not that of '{dense}'")
    refusal: Outcome[Column] = Refused(f"ids '{ids}' are not made of '{dense}'")
    for gathered in match.each_above(_VALUES):
        values = gathered[_VALUES]
        chain = Found([]) if skip(graph, ids) == values else chain_between(graph, values, ids)
        if isinstance(chain, Found):
            return Found(Column(dense, match[_PRESENT], values, chain.value))
        refusal = chain
    return refusal
