# SPDX-License-Identifier: Apache-2.0
"""Decide which models are placed together.

Baselines and variants marked `dedicated` are units of their own, as in plans. The other variants with the same tables,
the same baseline and the same gains from CPU features form a pool: on each machine of the pool they share cores, and
their tables are in memory once. A pool is split

- if its memory is more than half of that of the largest machine, so that it can be placed,
- if models miss their SLO only because they share it, by the rule of plans (`cost_model.planning.partition`),
- if models of much traffic need fewer cores on their own, as they no longer pay for switches between models.

This is a heuristic: bounds of placements hold for the pools that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cost_model.fleet.needs import Unit, own_gb, tables_of
from cost_model.planning.partition import split
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Member
from cost_model.workload import Tenant

# Models with less load than this never need fewer cores on their own.
_LEAST_LOAD_ALONE = 4.0
# Fraction of the memory of the largest machine that a pool may take.
_MOST_OF_MEMORY = 0.5

MakeUnit = Callable[[Sequence[Member]], Unit]


def make_units(members: Sequence[Member], make: MakeUnit, largest_gb: float) -> list[Unit]:
    """Group models into units.

    Parameters
    ----------
    members : sequence of Member
        All models with their rates over the whole fleet.
    make : callable
        Makes a unit of members.
    largest_gb : float [GB]
        Memory of the largest machine.
    """
    units = [make([member]) for member in members if _alone(member.model)]
    pools: dict[object, list[Member]] = {}
    for member in members:
        model = member.model
        if not _alone(model):
            footprint = model.footprint
            tables = frozenset(tables_of(model))
            key = (model.of, tables, footprint.speedups, footprint.least_replicas, footprint.most_replicas)
            pools.setdefault(key, []).append(member)
    for pool in pools.values():
        for part in _by_memory(pool, largest_gb):
            units += _by_slo(part, make)
    return units


def _alone(model: Tenant) -> bool:
    return model.role == "baseline" or model.dedicated


def _by_memory(pool: Sequence[Member], largest_gb: float) -> list[list[Member]]:
    """Split a pool so that each part, with the tables, needs at most half of the largest machine, if possible."""
    tables = tables_of(pool[0].model).values()
    room = _MOST_OF_MEMORY * largest_gb - sum(table.memory_gb for table in tables)
    parts: list[list[Member]] = [[]]
    used = 0.0
    for member in pool:
        own = own_gb(member.model)
        if parts[-1] and own > 0 and used + own > room:
            parts.append([])
            used = 0.0
        parts[-1].append(member)
        used += own
    return parts


def _by_slo(pool: Sequence[Member], make: MakeUnit) -> list[Unit]:
    """Split a pool whose models hinder each other."""
    done, left = [], [make(pool)]
    while left:
        unit = left.pop()
        fastest = unit.speeds[0]
        if len(unit.members) > 1 and unit.sizing(fastest).crowded:

            def sizing(members: Sequence[Member]) -> Sizing:
                return make(members).sizing(fastest)  # noqa: B023

            halves = split(unit.sizing(fastest), 1.0, sizing)
            if len(halves) == 2:
                left += [make(half.members) for half in halves]
                continue
        done += _without_large(unit, make)
    return done


def _without_large(unit: Unit, make: MakeUnit) -> list[Unit]:
    """Let models leave a pool, the one with the most load first, while that saves cores."""
    speed, alone = unit.speeds[0], []
    order = sorted(unit.members, key=lambda member: -_load(member))
    while len(order) > 1 and _load(order[0]) / speed >= _LEAST_LOAD_ALONE:
        large, rest = make(order[:1]), make(order[1:])
        if fewest_cores(large, speed) + fewest_cores(rest, speed) >= fewest_cores(unit, speed):
            break
        alone.append(large)
        unit, order = rest, order[1:]
    return [*alone, unit]


def _load(member: Member) -> float:
    """Return the cores that a model keeps busy on its own."""
    return member.qps / 1e6 * member.points(1).mean


def fewest_cores(unit: Unit, speed: float) -> float:
    """Return the fewest cores of this speed that all replicas of a unit need together; infinity if none are enough."""
    columns = zip(unit.counts, unit.all_cores(speed), strict=True)
    return min((float(count * cores) for count, cores in columns if cores is not None), default=float("inf"))
