# SPDX-License-Identifier: Apache-2.0
"""Simulate one workload under one policy, and judge the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cost_model.interference import Interference
from cost_model.machine import Machine
from cost_model.simulation import engine
from cost_model.simulation.engine import Floats
from cost_model.simulation.inputs import Inputs, Piece, Unjudged, alias_table, find_unjudged
from cost_model.simulation.policies import Assignment, Policy


@dataclass(frozen=True)
class ModelResult:
    """Contain the results of one model.

    Parameters
    ----------
    arrived, completed, dropped : int
        Requests; dropped ones were shed or late before they started. The remaining ones are still in the system.
    missed : float
        Part of the judged requests that were dropped or late.
    allowed : float
        Part that may be dropped or late.
    p50_ms, p99_ms : float [ms]
        Of completed requests.
    cores : float
        Busy cores on average.
    """

    name: str
    arrived: int
    completed: int
    dropped: int
    missed: float
    allowed: float
    p50_ms: float
    p99_ms: float
    mean_ms: float
    cores: float
    borrowed_cores: float

    @property
    def met(self) -> bool:
        return self.missed <= self.allowed


@dataclass(frozen=True)
class Result:
    """Contain the outcome of a run.

    Parameters
    ----------
    met : bool
        Every model met its SLO; false also if the run stopped early because a model certainly had not.
    stopped_s : float, optional [s]
        Time at which it was stopped.
    slowdown : float
        Core time used, divided by the core time of the same requests alone: the cost of interference.
    owners : list of (time [s], labels of groups, cores of each)
        Every change of the ownership of cores.
    moves : list of (time [s], Move)
    unjudged : tuple of Unjudged
        Models that were not judged for a time.
    """

    policy: str
    qps: float
    met: bool
    models: tuple[ModelResult, ...]
    simulated_s: float
    wall_s: float
    stopped_s: float | None = None
    utilisation: float = 0.0
    slowdown: float = 1.0
    owners: list[tuple[float, Any]] = field(default_factory=list)
    moves: list[tuple[float, Any]] = field(default_factory=list)
    unjudged: tuple[Unjudged, ...] = ()

    @property
    def arrived(self) -> int:
        return sum(model.arrived for model in self.models)

    @property
    def worst(self) -> ModelResult:
        """Return the model that uses the largest part of its allowed misses."""
        return max(self.models, key=lambda model: model.missed / model.allowed)


def simulate(
    inputs: Inputs,
    machine: Machine,
    pieces: Sequence[Piece],
    policy: Policy,
    qps: float,
    seed: int,
    interference: Interference,
    *,
    stop_early: bool = False,
    observe: Callable[[float, Any], None] | None = None,
) -> Result:
    """Simulate requests for a whole schedule.

    Parameters
    ----------
    inputs : Inputs
    machine : Machine
    pieces : sequence of Piece
    policy : Policy
        Its `start` is called once, its `step` at every whole second.
    qps : float [requests/s]
        Total of all models at level 1.
    seed : int
    interference : Interference
    stop_early : bool
        Stop as soon as a model certainly misses its SLO, whatever happens in the rest of the run.
    observe : callable of (time [s], state), optional
        Called at every whole second, for pictures.
    """
    began = time.perf_counter()
    state = _make_state(inputs, machine, seed)
    assignment = policy.start(inputs, machine, qps)
    load = inputs.load_with_threads(assignment.threads) if assignment.threads else inputs.load
    # Judged in the same way under every policy: by the times of models with the threads of the inputs.
    broken = find_unjudged(inputs.load, inputs.names, pieces)
    excused = _unjudged_periods(inputs, broken)
    load.excused_from_us[:], load.excused_until_us[:] = excused
    expected = _expected_requests(inputs, excused, pieces, qps)
    certain = inputs.allowed * (expected + 6 * np.sqrt(expected) + 1)
    segment = _make_segment(inputs, machine, interference)
    deadline_us = load.deadline_us.copy()
    state.raw.slice_us = assignment.slice_us
    apply(state, load, segment, assignment)
    course = _Course([(0.0, assignment)])
    shares: Any = None
    for piece in pieces:
        if piece.shares is not shares:
            shares = piece.shares
            segment.alias_share[:], segment.alias_other[:] = alias_table(shares.copy())
        _advance(state, load, segment, piece, qps)
        if piece.end_s != int(piece.end_s):
            continue
        if observe:
            observe(piece.end_s, state)
        changed, moves = policy.step(piece.end_s, state, inputs)
        course.moves += [(piece.end_s, move) for move in moves]
        if changed is not None:
            apply(state, load, segment, changed)
            course.owners.append((piece.end_s, changed))
        if stop_early and (state.missed > certain).any():
            course.stopped_s = piece.end_s
            break
    load.deadline_us[:] = deadline_us
    return _result(inputs, state, policy.name, qps, course, broken, time.perf_counter() - began)


@dataclass
class _Course:
    """Record how ownership changed during a run, and when the run was stopped."""

    owners: list[tuple[float, Any]]
    moves: list[tuple[float, Any]] = field(default_factory=list)
    stopped_s: float | None = None


def _make_state(inputs: Inputs, machine: Machine, seed: int) -> Any:
    nodes = {node: place for place, node in enumerate(machine.nodes)}
    core_nodes = np.array([nodes[core.node] for core in machine.cores])
    count = len(inputs.names)
    # One more than the models: a policy may have groups without models.
    return engine.make_state(core_nodes, count, count + 2, seed)


def _make_segment(inputs: Inputs, machine: Machine, interference: Interference) -> Any:
    count = len(inputs.names)
    return engine.make_segment(
        end_us=0.0, rate_per_us=0.0, alias_share=np.ones(count), alias_other=np.arange(count), factor=np.ones(count),
        switch_cost=interference.switch, oversubscription=interference.shared_cache, knee=interference.knee,
        bandwidth=interference.bandwidth, node_bytes_per_us=machine.memory_bandwidth_gbs_per_node * 1e3,
        idle_start_us=interference.idle_start_us,
    )  # fmt: skip


def _advance(state: Any, load: Any, segment: Any, piece: Piece, qps: float) -> None:
    """Simulate a piece of the schedule."""
    segment.factor[:] = piece.factor
    segment.raw.end_us = piece.end_s * 1e6
    segment.raw.rate_per_us = qps * piece.level * 1e-6
    engine.advance(state, load, segment)


def _result(
    inputs: Inputs,
    state: Any,
    policy: str,
    qps: float,
    course: _Course,
    broken: tuple[Unjudged, ...],
    wall_s: float,
) -> Result:
    simulated_s = float(state.now_us) / 1e6
    models = _results(inputs, state, simulated_s)
    met = course.stopped_s is None and all(model.met for model in models)
    busy, alone = float(state.busy_us.sum()), float(state.alone_us.sum())
    return Result(
        policy, qps, met, models, simulated_s, wall_s, course.stopped_s,
        busy / (int(state.cores) * simulated_s * 1e6), busy / max(alone, 1.0), course.owners, course.moves, broken,
    )  # fmt: skip


def apply(state: Any, load: Any, segment: Any, assignment: Assignment) -> None:
    """Apply an assignment of cores and models."""
    groups = len(assignment.labels)
    state.lends[:] = False
    state.borrows[:] = False
    state.lends[:groups] = assignment.lends
    state.borrows[:groups] = assignment.borrows
    state.lend_after_us[:groups] = assignment.lend_after_us
    state.oversubscribed[:groups] = assignment.oversubscribed
    if assignment.wait_part is not None:
        load.deadline_us[:] = np.minimum(load.deadline_us, np.array(assignment.wait_part) * load.slo_us)
    if assignment.limit is not None:
        state.limit[:] = assignment.limit
    engine.regroup(state, load, segment, np.array(assignment.core_owner), np.array(assignment.group_of))


def _unjudged_periods(inputs: Inputs, broken: Sequence[Unjudged]) -> tuple[Floats, Floats]:
    """Return the period [µs] in which each model is not judged."""
    begin, end = (np.full(len(inputs.names), engine.NEVER) for _ in range(2))
    for model in broken:
        place = inputs.names.index(model.name)
        begin[place], end[place] = model.from_s * 1e6, model.until_s * 1e6
    return begin, end


def _expected_requests(inputs: Inputs, excused: tuple[Floats, Floats], pieces: Sequence[Piece], qps: float) -> Floats:
    """Return how many requests of each model will be judged, on average."""
    total, start = np.zeros(len(inputs.names)), 0.0
    begin, end = excused
    for piece in pieces:
        left_out = (begin <= start * 1e6) & (start * 1e6 < end)
        total += np.where(left_out, 0.0, piece.shares * (piece.level * (piece.end_s - start) * qps))
        start = piece.end_s
    return total


def quantile_ms(histogram: Any, level: float) -> float:
    """Return a quantile of a latency histogram [ms]: the middle of its bucket; NaN without requests."""
    total = int(histogram.sum())
    if total == 0:
        return float("nan")
    edges = engine.bucket_edges_us()
    place = int(np.searchsorted(np.cumsum(histogram), level * total))
    low = edges[place - 1] if place else 0.0
    return float((low + edges[place]) / 2e3)


def _results(inputs: Inputs, state: Any, simulated_s: float) -> tuple[ModelResult, ...]:
    results = []
    for place, name in enumerate(inputs.names):
        completed = int(state.completed[place])
        results.append(
            ModelResult(
                name,
                int(state.arrived[place]),
                completed,
                int(state.dropped[place]),
                float(state.missed[place]) / max(1, int(state.judged[place])),
                float(inputs.allowed[place]),
                quantile_ms(state.histogram[place], 0.5),
                quantile_ms(state.histogram[place], 0.99),
                float(state.latency_us[place]) / max(1, completed) / 1e3,
                float(state.busy_us[place]) / (simulated_s * 1e6),
                float(state.borrowed_us[place]) / (simulated_s * 1e6),
            )
        )
    return tuple(results)
