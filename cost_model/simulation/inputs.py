# SPDX-License-Identifier: Apache-2.0
"""Convert a workload for the event loop: quantile tables, schedules of rates, and allowed misses."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from cost_model.errors import WorkloadError
from cost_model.service import RowDistribution, ServiceTime, lognormal
from cost_model.simulation import engine
from cost_model.simulation.engine import NEVER, TABLE, Floats
from cost_model.traffic import Event, Sine, Traffic
from cost_model.workload import Tenant, Workload

P99_MISSES = 0.01
"""Part of the requests that may miss a p99 SLO."""
BROKEN = 0.10
"""Largest part that may be allowed to a model that misses its SLO alone; while an event raises it, it is not judged."""


@functools.cache
def _normal() -> Floats:
    normal = NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / TABLE) for i in range(TABLE)])


def _noise(cv: float) -> Floats:
    """Return quantiles of a lognormal with mean 1 and this coefficient of variation [TABLE]."""
    mu, sigma = lognormal(1.0, cv)
    values = np.exp(mu + sigma * _normal())
    return np.asarray(values / values.mean())


def _rows(rows: RowDistribution) -> Floats:
    """Return quantiles of rows per request [TABLE]."""
    if rows.kind == "lognormal":
        mu, sigma = lognormal(rows.nominal_mean, rows.cv)
        values = np.exp(mu + sigma * _normal())
        return np.asarray(np.clip(np.rint(values), 1, rows.maximum))
    return np.sort(rows.sample(np.random.default_rng(0), 64 * TABLE)).reshape(TABLE, 64)[:, 32]


@dataclass(frozen=True)
class Inputs:
    """Contain a workload in the form of the event loop.

    Parameters
    ----------
    workload : Workload
    load : struct
        See `Load` in `engine.cc`.
    names : tuple of str
    shares : ndarray [models]
        Part of all requests at level 1; the sum is 1.
    mean_us : ndarray [models] [µs]
        Core time of a single request.
    alone : ndarray [models]
        Part of the requests that miss their SLO on idle cores; no allocation can change this.
    allowed : ndarray [models]
        Part that may miss: 1 %, or twice `alone` if that is more, up to 10 %; the same for every policy.
    """

    workload: Workload
    load: Any
    names: tuple[str, ...]
    shares: Floats
    mean_us: Floats
    alone: Floats
    allowed: Floats

    @property
    def demand_us(self) -> float:
        """Return the mean core time of a request over all models [µs]."""
        return float(self.shares @ self.mean_us)

    @property
    def unserved(self) -> tuple[str, ...]:
        """Return models that miss too much even on idle cores: no policy serves them without more threads."""
        return tuple(name for name, part in zip(self.names, self.alone, strict=True) if part > BROKEN)

    def load_with_threads(self, threads: Mapping[str, int]) -> Any:
        """Return the `load` with these threads per session; dropping and the allowed misses stay the same."""
        load = _load(self.workload, threads)
        load.deadline_us[:] = self.load.deadline_us
        return load


def build_inputs(workload: Workload, threads: Mapping[str, int] | None = None) -> Inputs:
    """Build the tables of a workload.

    Parameters
    ----------
    workload : Workload
    threads : mapping of model to int, optional
        Threads per session; 1 for models that are missing. A request with t threads uses t cores for
        fixed + per_row · rows · (1 - p + p/t), where p is the part that is divided.

    Raises
    ------
    WorkloadError
        If no model receives requests, or some have a share of an unknown total and others rates of their own.
    """
    shares = _shares(workload)
    load = _load(workload, threads or {})
    divided = 1 - load.parallel + load.parallel / load.threads
    mean_rows = load.rows.mean(axis=1)[load.rows_of]
    mean_us = (load.fixed_us + load.per_row_us * mean_rows * divided) * load.threads
    alone = np.array([missed_alone(load, model, 1.0) for model in range(len(shares))])
    names = tuple(model.name for model in workload.models)
    return Inputs(workload, load, names, shares, mean_us, alone, np.clip(2 * alone, P99_MISSES, BROKEN))


def _load(workload: Workload, threads: Mapping[str, int]) -> Any:
    """Create the description of requests."""
    row_tables: dict[Any, int] = {}
    noise_tables: dict[Any, int] = {}
    rows: list[Floats] = []
    noise: list[Floats] = []

    def place(known: dict[Any, int], tables: list[Floats], key: Any, make: Any) -> int:
        if key not in known:
            known[key] = len(tables)
            tables.append(make())
        return known[key]

    columns: dict[str, list[float]] = {name: [] for name in ("fixed_us", "per_row_us", "parallel", "bytes_per_row")}
    rows_of, noise_of, counts = [], [], []
    for model in workload.models:
        count = threads.get(model.name, 1)
        counts.append(count)
        service = model.service
        if isinstance(service, ServiceTime):
            rows_of.append(place(row_tables, rows, model.rows, lambda m=model: _rows(m.rows)))
            noise_of.append(place(noise_tables, noise, service.cv, lambda s=service: _noise(s.cv)))
            values = (service.fixed_us, service.per_row_us, service.parallel, model.bytes_per_row)
        else:
            # A measured table has no factors: its service times replace the rows.
            make_table = functools.partial(_table_of_times, model, count)
            rows_of.append(place(row_tables, rows, (model.name, count), make_table))
            noise_of.append(place(noise_tables, noise, 0.0, lambda: np.ones(TABLE)))
            per_us = model.bytes_per_row * model.rows.mean / rows[rows_of[-1]].mean()
            values = (0.0, 1.0, 0.0, float(per_us))
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
    slo_us = np.array([model.slo_p99_ms * 1e3 for model in workload.models])
    never = np.full(len(slo_us), NEVER)
    return engine.make_load(
        **columns, rows_of=rows_of, noise_of=noise_of, rows=np.stack(rows), noise=np.stack(noise), threads=counts,
        slo_us=slo_us, deadline_us=slo_us, excused_from_us=never, excused_until_us=never,
    )  # fmt: skip


def _table_of_times(model: Tenant, threads: int) -> Floats:
    random = np.random.default_rng(0)
    drawn = model.service.sample(random, model.rows.sample(random, 16 * TABLE), threads)
    return np.asarray(np.sort(drawn).reshape(TABLE, 16).mean(axis=1))


def _shares(workload: Workload) -> Floats:
    """Return the parts of all requests that models have; every total rate is divided by them."""
    # If no model has its own rate, the parts are the same for any total.
    only_shares = all(model.qps is None for model in workload.models)
    rates = workload.qps_by_model(1.0 if only_shares else None)
    shares = np.array([rates[model.name] for model in workload.models])
    if shares.sum() <= 0:
        raise WorkloadError("models: rates with the sum 0 found, expected at least one above 0")
    return np.asarray(shares / shares.sum())


def missed_alone(load: Any, model: int, factor: float) -> float:
    """Return the part of a model's requests that miss the SLO on idle cores, with service times times `factor`."""
    threads = load.threads[model]
    divided = 1 - load.parallel[model] + load.parallel[model] / threads
    sizes = load.rows[load.rows_of[model]][::64]
    work = (load.fixed_us[model] + load.per_row_us[model] * sizes * divided) * factor
    noise = load.noise[load.noise_of[model]][::16]
    return float((np.multiply.outer(work, noise) > load.slo_us[model]).mean())


@dataclass(frozen=True)
class Piece:
    """Describe a period in which rates and service times are constant.

    Parameters
    ----------
    end_s : float [s]
    level : float
        Level of all arrivals relative to the base rate.
    shares : ndarray [models]
    factor : ndarray [models]
        Multiplies service times.
    """

    end_s: float
    level: float
    shares: Floats
    factor: Floats


@dataclass(frozen=True)
class Unjudged:
    """Describe a model that an event makes too slow for any allocation: it is not judged in this period.

    Parameters
    ----------
    name : str
    from_s, until_s : float [s]
        Period in which the requests arrive.
    factor : float
        Multiplies its service times.
    missed : float
        Part of its requests that then misses the SLO, alone on idle cores.
    """

    name: str
    from_s: float
    until_s: float
    factor: float
    missed: float

    def __str__(self) -> str:
        return (
            f"{self.name} is not judged from {self.from_s:g} to {self.until_s:g} s: at {self.factor:g} times its "
            f"service time, {self.missed:.0%} of its requests miss its SLO on idle cores"
        )


def find_unjudged(load: Any, names: Sequence[str], pieces: Sequence[Piece]) -> tuple[Unjudged, ...]:
    """Return the models that are not judged for a time: from the first event that breaks one until it recovers."""
    found: dict[int, Unjudged] = {}
    well: set[int] = set()
    start = 0.0
    for piece in pieces:
        for model in (int(place) for place in np.flatnonzero(piece.factor > 1)):
            if model not in found:
                factor = float(piece.factor[model])
                missed = missed_alone(load, model, factor)
                if missed > BROKEN:
                    found[model] = Unjudged(names[model], start, pieces[-1].end_s, factor, missed)
        for model in found.keys() - well:
            if piece.factor[model] <= 1:
                found[model] = replace(found[model], until_s=start)
                well.add(model)
        start = piece.end_s
    return tuple(found[model] for model in sorted(found))


def shorten_traffic(traffic: Traffic, minutes_scale: float) -> Traffic:
    """Shorten a kind of traffic: its duration, period, events and redraws; bursts and pauses of 30 s remain."""
    level = traffic.level
    if isinstance(level, Sine):
        level = replace(level, period_s=level.period_s * minutes_scale)
    reshare = traffic.reshare
    if reshare:
        every_s = max(min(30.0, reshare.every_s), reshare.every_s * minutes_scale)
        reshare = replace(reshare, every_s=every_s)
    events = tuple(Event(event.at_s * minutes_scale, event.model, event.service_factor) for event in traffic.events)
    shorter = max(1.0, traffic.duration_s * minutes_scale)
    return replace(traffic, duration_s=shorter, level=level, reshare=reshare, events=events)


def schedule(workload: Workload, traffic: Traffic, seed: int) -> list[Piece]:
    """Draw a schedule of traffic: pieces of at most a second that end at whole seconds and at every change."""
    random = np.random.default_rng([seed, 7])
    base = _shares(workload)
    marks = set(np.arange(1.0, traffic.duration_s)) | {traffic.duration_s}
    levels = _burst_levels(traffic, random)
    marks |= {end for end, _ in levels if end < traffic.duration_s}
    marks |= {event.at_s for event in traffic.events if 0 < event.at_s < traffic.duration_s}
    drawn = _redraws(workload, traffic, base, random)
    names = [model.name for model in workload.models]
    pieces, start, state = [], 0.0, 0
    shares, factor = base, np.ones(len(names))
    events = list(traffic.events)
    for end in sorted(marks):
        while events and events[0].at_s <= start + 1e-9:
            event = events.pop(0)
            factor = factor.copy()
            factor[names.index(event.model)] = event.service_factor
        while drawn and drawn[0][0] <= start + 1e-9:
            shares = drawn.pop(0)[1]
        if levels:
            while levels[state][0] <= start + 1e-9:
                state += 1
            level = levels[state][1]
        else:
            level = traffic.level_at((start + end) / 2)
        pieces.append(Piece(float(end), level, shares, factor))
        start = end
    return pieces


def _burst_levels(traffic: Traffic, random: np.random.Generator) -> list[tuple[float, float]]:
    """Return (end [s], level) of the successive states of an mmpp."""
    levels: list[tuple[float, float]] = []
    end, state = 0.0, 0
    while traffic.states and end < traffic.duration_s:
        end += float(random.exponential(traffic.states[state].mean_s))
        levels.append((end, traffic.states[state].level))
        others = [index for index in range(len(traffic.states)) if index != state]
        state = int(random.choice(others)) if others else state
    return levels


def _redraws(
    workload: Workload, traffic: Traffic, base: Floats, random: np.random.Generator
) -> list[tuple[float, Floats]]:
    """Return (time [s], shares) of every redraw."""
    if traffic.reshare is None:
        return []
    moved = np.array([model.group in traffic.reshare.groups for model in workload.models])
    drawn = []
    for at_s in np.arange(0.0, traffic.duration_s, traffic.reshare.every_s):
        shares = base.copy()
        weights = random.dirichlet(np.full(int(moved.sum()), traffic.reshare.dirichlet_alpha))
        shares[moved] = base[moved].sum() * weights
        drawn.append((float(at_s), shares))
    return drawn


def alias_table(weights: Floats) -> tuple[Floats, Any]:
    """Return the table that draws from weights with one random number (Walker 1977, Vose 1991)."""
    count = len(weights)
    scaled_weights = weights / weights.sum() * count
    share, other = np.ones(count), np.arange(count)
    small = [i for i in range(count) if scaled_weights[i] < 1]
    large = [i for i in range(count) if scaled_weights[i] >= 1]
    while small and large:
        less, more = small.pop(), large[-1]
        share[less], other[less] = scaled_weights[less], more
        scaled_weights[more] -= 1 - scaled_weights[less]
        if scaled_weights[more] < 1:
            small.append(large.pop())
    return share, other
