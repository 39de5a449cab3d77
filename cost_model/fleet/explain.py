# SPDX-License-Identifier: Apache-2.0
"""Explain a placement: why a model is on these machines, what would change it, and why a model has no place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.fleet.needs import Unit
from cost_model.fleet.packing import Packing
from cost_model.fleet.placer import Placement, make_problem, place
from cost_model.fleet.pools import fewest_cores
from cost_model.planning.sizing import Sizing

# Cores beyond which a need is not computed.
_FAR = 1 << 14


@dataclass(frozen=True)
class Explanation:
    """Contain sentences about a model."""

    name: str
    why: tuple[str, ...]


def explain(made: Placement, name: str) -> Explanation:
    """Explain where a model is."""
    number = next(number for number, unit in enumerate(made.problem.units) if name in unit.names)
    if number in made.unplaced:
        return Explanation(name, (_why_unplaced(made, number),))
    return Explanation(
        name,
        (
            *_why_replicas(made, number),
            *_why_machines(made, number),
            *_what_would_change(made, number),
        ),
    )


def reasons_of(made: Placement) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Return findings about a placement, and the models without a place with the reason for each."""
    problem, reasons = made.problem, []
    for unit in problem.units:
        reasons += [
            f"{name}: misses its SLO on every machine, even on idle cores; no placement meets it"
            for name in unit.hopeless
        ]
    missing = [(name, _why_unplaced(made, n)) for n in made.unplaced for name in problem.units[n].names]
    total = sum(machine.cost for machine in problem.fleet.machines)
    if problem.prices.bound > total * (1 + 1e-9):
        reasons.append(
            f"the fleet is too small for any placement: at least {problem.prices.bound / total - 1:.1%} more machines "
            "like these are needed"
        )
    reasons += _missing_spare(made)
    features = {feature for machine in problem.fleet.machines for feature in machine.features}
    wanted = {feature for unit in problem.units for feature, _ in unit.speedups}
    reasons += [f"no machine has the CPU feature {name}, which would make models faster" for name in wanted - features]
    return tuple(reasons), missing


def _why_replicas(made: Placement, number: int) -> list[str]:
    unit, packing = made.problem.units[number], made.packing
    option = next(iter(packing.hosts[number].values()))
    cores = sorted({int(option.cores[at]) for at in packing.hosts[number]})
    each = f"{cores[0]}" if len(cores) == 1 else f"{cores[0]} to {cores[-1]}"
    left = made.problem.survival.left(option.replicas)
    lost = option.replicas - left
    what = {"none": "no loss is survived", "machine": "any machine", "zone": "any zone"}[made.problem.survival.kind]
    after = f"; after the loss of {what} ({lost} of them) {left} serve everything" if lost else f"; {what}"
    shared = f", shared by {len(unit.names)} models" if len(unit.names) > 1 else ""
    lines = [
        f"{option.replicas} replicas with {each} cores each{shared}: it keeps {unit.load():.1f} cores of speed 1 busy"
        + after
    ]
    others = []
    for count in (option.replicas - 1, option.replicas + 1):
        if count in unit.counts:
            need = unit.cores(count, unit.speeds[0])
            if need is not None:
                others.append(f"{count} replicas: {need} cores each, {count * need} together")
        elif count < option.replicas:
            others.append(f"{count} replicas: too few {_why_too_few(made, unit, count)}")
    now = unit.cores(option.replicas, unit.speeds[0])
    if others and now is not None:
        lines.append(f"On its fastest machines: {option.replicas * now} cores together; " + "; ".join(others))
    return lines


def _why_too_few(made: Placement, unit: Unit, count: int) -> str:
    if made.problem.survival.left(count) < 1:
        return f"to survive the loss of a {made.problem.survival.kind}"
    if count < max(member.model.footprint.least_replicas for member in unit.members):
        return "for its `replicas`"
    return f"for machines of {unit.most_cores} cores"


def _why_machines(made: Placement, number: int) -> list[str]:
    unit, packing, machines = made.problem.units[number], made.packing, made.problem.fleet.machines
    hosts = sorted(packing.hosts[number])
    lines = [f"On {_first([machines[at].name for at in hosts])}"]
    if made.problem.survival.kind == "zone":
        zones: dict[str, int] = {}
        for at in hosts:
            zones[str(machines[at].zone)] = zones.get(str(machines[at].zone), 0) + 1
        lines[0] += f", in {len(zones)} zones ({', '.join(f'{zone} {count}' for zone, count in sorted(zones.items()))})"
    if unit.tables:
        own = set(unit.tables)
        others = {
            other
            for at in hosts
            for other in packing.residents[at]
            if other != number and own & set(made.problem.units[other].tables)
        }
        together = sum(len(made.problem.units[other].names) for other in others)
        if together:
            lines.append(f"{together} other models there read the same tables, which are in memory once")
    features = {feature for feature, factor in unit.speedups if factor > 1}
    if features:
        count = sum(bool(features & machines[at].features) for at in hosts)
        lines.append(f"{count} of these machines have {', '.join(sorted(features))}, which makes it faster")
    if made.previous is not None:
        before = {machine for name in unit.names for machine in made.previous.get(name, ())}
        kept = sum(machines[at].name in before for at in hosts)
        lines.append(f"{kept} of {len(hosts)} were there before")
    return lines


def _what_would_change(made: Placement, number: int) -> list[str]:
    """Say how far its traffic can grow before its replicas need more cores, and whether there is room for them."""
    unit, packing = made.problem.units[number], made.packing
    option = next(iter(packing.hosts[number].values()))
    left = made.problem.survival.left(option.replicas)
    growths = []
    speeds = made.problem.fleet.speeds(unit.speedups)
    for speed, cores in {(speeds[at], int(option.cores[at])) for at in packing.hosts[number]}:
        growths.append(unit.sizing(speed).growth(cores) * left)
    growth = min(growths)
    more = int(min(packing.free["cores"][at] for at in packing.hosts[number]))
    text = f"can grow by {growth - 1:.0%}" if np.isfinite(growth) else "has no traffic"
    tail = f"; every machine of it has {more} cores more" if more else "; a machine of it has no core more"
    return [f"Its traffic {text} before a replica needs another core{tail}"]


def _why_unplaced(made: Placement, number: int) -> str:
    """Say which resource a unit lacks, and by how much."""
    unit, survival, machines = made.problem.units[number], made.problem.survival, made.problem.fleet.machines
    if not unit.counts:
        return _why_no_count(made, unit)
    count = min(unit.counts, key=lambda count: count * (unit.cores(count, unit.speeds[0]) or _FAR))
    empty = made.problem.packing()
    packing = made.packing
    for which, there in (("any machine", empty), ("machines with room", packing)):
        option = there.option(number, count)
        possible = there.fits(number, option)
        if int(possible.sum()) < count:
            lacks = _lacking(there, number, count)
            if which == "any machine":
                return f"{count} replicas need a machine each, and only {int(possible.sum())} are large enough: {lacks}"
            return (
                f"{count} replicas need a machine each, and {int(possible.sum())} of {len(machines)} have room left: "
                f"{lacks}"
            )
    return f"{count} replicas need machines in {survival.domains} zones with room, and too few zones have it"


def _lacking(packing: Packing, number: int, count: int) -> str:
    """Say for each resource how much the machine lacks that would be the next best, if nothing else were missing."""
    option = packing.option(number, count)
    memory, disk = packing.added(number)
    needs = {"cores": option.cores, "memory": memory, "disk": disk}
    needs["bandwidth"] = np.full(len(memory), option.bandwidth_gbs)
    units = {"cores": "cores", "memory": "GB of memory", "disk": "GB of disk", "bandwidth": "GB/s of memory traffic"}
    found = []
    for name, need in needs.items():
        short = need - packing.free[name]
        ranked = np.sort(short[np.isfinite(short)])
        if len(ranked) >= count and ranked[count - 1] <= 1e-9:
            continue
        if not len(ranked):
            continue
        at = int(np.argsort(np.where(np.isfinite(short), short, np.inf), kind="stable")[min(count, len(ranked)) - 1])
        machine = packing.fleet.machines[at].name
        found.append(
            f"a replica needs {need[at]:g} {units[name]}, and {machine} has {packing.free[name][at]:g} free, "
            f"{short[at]:.4g} too few"
        )
    return "; ".join(found) or "no machine has all of cores, memory and disk"


def _missing_spare(made: Placement) -> list[str]:
    """Say if models lack a place only because a loss must be survived, and how many cores that takes."""
    problem = made.problem
    kind = problem.survival.kind
    if kind == "none" or not made.unplaced:
        return []
    rates = {member.model.name: member.qps for unit in problem.units for member in unit.members}
    without = place(make_problem(problem.workload, problem.fleet, rates, problem.costs, "none"), seconds=1.0)
    if without.unplaced:
        return []
    totals = [fewest_cores(problem.units[number], problem.units[number].speeds[0]) for number in made.unplaced]
    cores = f"{sum(totals):g} more cores" if np.isfinite(sum(totals)) else "larger machines"
    return [f"without spare capacity for the loss of a {kind} all models fit; with it, {cores} are needed for the rest"]


def _why_no_count(made: Placement, unit: Unit) -> str:
    survival = made.problem.survival
    most = [m.model.footprint.most_replicas for m in unit.members if m.model.footprint.most_replicas is not None]
    count = min([*most, survival.machines])
    least = max(survival.least_replicas, *(member.model.footprint.least_replicas for member in unit.members))
    if count < least:
        return f"at least {least} replicas are needed, and at most {count} are possible"
    left = survival.left(count)
    if left < 1:
        return f"{count} replicas do not survive the loss of a {survival.kind}"
    need = min(_need_far(unit.sizing(speed), left) for speed in unit.speeds)
    which = "" if survival.kind == "none" else f" after the loss of a {survival.kind}"
    return (
        f"fits on no machine: each of {count} replicas needs {need} cores{which}, and the largest machine has "
        f"{unit.most_cores}, {need - unit.most_cores} too few"
    )


def _need_far(sizing: Sizing, left: int) -> int:
    return sizing.need(1 / left, most=_FAR)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
