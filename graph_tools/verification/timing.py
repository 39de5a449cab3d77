# SPDX-License-Identifier: Apache-2.0
"""Measure from TensorFlow's trace where a model spends its time, and how much of it in nodes that are not fused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from graph_tools.graph import Graph
from graph_tools.graph.op_library import is_ours
from graph_tools.json_data import Count, NotNegative, Positive
from graph_tools.model import Model
from graph_tools.verification.request import Request
from graph_tools.verification.runner import LoadError, SessionRunner, quiet, refusal_of

#: Number of requests to trace; those with most rows come first.
MOST_REQUESTS = 8
#: Runs per request; the median of each node's times counts.
RUNS = 5

_WARM_UPS = 2
_NO_WORK = {"Placeholder", "Const", "VarHandleOp", "Identity", "IdentityN", "NoOp", "ReadVariableOp"}


@dataclass
class Region:
    """Connected nodes that are not fused.

    Attributes
    ----------
    node : str
        The node that takes most of the time.
    nodes : int
    ops : str
        The ops that take most of the time, the longest first.
    share : float
        Share of the time of all nodes of the original.
    reason : str
        Why it is not fused.
    """

    node: str
    nodes: Positive
    ops: str
    share: NotNegative
    reason: str


@dataclass
class Timing:
    """Time that the nodes of the original take.

    Attributes
    ----------
    requests, rows : int
        Number of traced requests and rows.
    median_us : float
        Time of all nodes together, for a request.
    replaced : float
        Share of the time of nodes that are no longer in the fused graph.
    regions : list of Region
        The other nodes, the longest first.
    note : str
        Why nothing was measured, else empty.
    """

    requests: Count = 0
    rows: Count = 0
    median_us: NotNegative = 0.0
    replaced: float = 0.0
    regions: list[Region] = field(default_factory=list)
    note: str = ""


@dataclass
class Trace:
    """Time that the nodes of a model take, before any pass.

    Attributes
    ----------
    times : dict of str to float [ns]
        By the name of a node, summed over all traced requests.
    requests, rows, median_us, note
        As in `Timing`.
    """

    times: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: int = 0
    rows: int = 0
    median_us: float = 0.0
    note: str = ""

    def weigh(self, fused: Graph, refused: Iterable[tuple[str, str]]) -> Timing:
        """Return how the time is distributed over the nodes that a fused graph still has.

        Parameters
        ----------
        fused : Graph
            Its nodes have the names that they had in the original.
        refused : iterable of (site, reason)
        """
        found = Timing(self.requests, self.rows, self.median_us, note=self.note)
        if not self.note:
            left = _of_nodes(self.times, fused)
            whole = sum(self.times.values())
            found.regions = _regions(fused, {name: time / whole for name, time in left.items()}, dict(refused))
            found.replaced = 1 - sum(left.values()) / whole
        return found


def measure(original: Model, requests: Sequence[Request]) -> Trace:
    """Trace a model as it was read.

    Parameters
    ----------
    original : Model
    requests : sequence of Request
    """
    asked = sorted(requests, key=_rows, reverse=True)
    try:
        with quiet():
            runner = SessionRunner(original)
    except LoadError as error:
        return Trace(note=f"{original.path}: not measured, since TensorFlow does not load it: {error}")
    found = Trace()
    totals = []
    try:
        for request in asked:
            traced = _trace(runner, request)
            if traced is None:
                continue
            found.requests, found.rows = found.requests + 1, found.rows + _rows(request)
            totals.append(sum(traced.values()))
            for name, nanoseconds in traced.items():
                found.times[name] += nanoseconds
            if found.requests == MOST_REQUESTS:
                break
    finally:
        runner.close()
    if not totals or not sum(totals):
        found.note = f"{original.path}: not measured, since it answers none of {len(asked)} requests"
    else:
        found.median_us = median(totals) / 1e3
    return found


def _trace(runner: SessionRunner, request: Request) -> dict[str, float] | None:
    """Return the time of each node [ns], or None if the model refuses the request."""
    runs: dict[str, list[float]] = defaultdict(list)
    for number in range(_WARM_UPS + RUNS):
        try:
            stats = runner.trace(request)
        except Exception as error:
            if refusal_of(error) is None:
                raise
            return None
        once: dict[str, float] = defaultdict(float)
        for device in stats.dev_stats:
            for node in device.node_stats:
                once[node.node_name] += node.op_end_rel_nanos - node.op_start_rel_nanos
        if number >= _WARM_UPS:
            for name, nanoseconds in once.items():
                runs[name].append(nanoseconds)
    return {name: median(run) for name, run in runs.items()}


def _rows(request: Request) -> int:
    return max((len(source) for source in request.inputs.values() if source.ndim), default=1)


def _of_nodes(times: Mapping[str, float], fused: Graph) -> dict[str, float]:
    """Sum up the times of nodes that a graph has; nodes inside a loop or branch count for the loop or branch."""
    found: dict[str, float] = defaultdict(float)
    for name, time in times.items():
        place = name
        while place and place not in fused:
            place = place.rpartition("/")[0]
        if place and fused[place].op not in _NO_WORK and not is_ours(fused[place].op):
            found[place] += time
    return dict(found)


def _regions(fused: Graph, shares: Mapping[str, float], reasons: Mapping[str, str]) -> list[Region]:
    """Group nodes that are connected by tensors."""
    waiting = {node.name for node in fused if node.op not in _NO_WORK and not is_ours(node.op)}
    found = []
    while waiting:
        region, edge = set[str](), [waiting.pop()]
        while edge:
            name = edge.pop()
            region.add(name)
            beside = {source.node for source in fused[name].inputs} | {user.name for user in fused.users(name)}
            edge += beside & waiting
            waiting -= beside
        share = sum(shares.get(name, 0.0) for name in region)
        longest = sorted(region, key=lambda name: (-shares.get(name, 0.0), name))
        ops: Counter[str] = Counter()
        for name in region:
            ops[fused[name].op] += round(1e9 * shares.get(name, 0.0))
        why = next((reasons[name] for name in longest if name in reasons), "no pass knows it")
        found.append(Region(longest[0], len(region), ", ".join(op for op, _ in ops.most_common(3)), share, why))
    return sorted(found, key=lambda region: (-region.share, region.node))
