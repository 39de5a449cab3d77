# SPDX-License-Identifier: Apache-2.0
"""CPUs for versions, from the pools' cores. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cost_model.control import Pool
from cost_model.machine import Machine
from serving_proxy.system.cpus import format_cpus, read_cpus

# Demand divided by cores: above the first value, a baseline that cannot grow may also run on the variants' cores; below
# the second, that ends.
SHORT, RELIEVED = 0.85, 0.6
# Busy cores of all variants: below the first value, baselines may also use the variants' cores; above the second, that
# ends.
IDLE, BUSY = 0.05, 0.15


def borrows(pools: Sequence[Pool], demand: Mapping[str, float], pressure: Mapping[str, float], now: bool) -> str | None:
    """Return why baselines may run on every core, or None if they may not.

    They may if no pool of variants has more than one core, and the baselines need these cores or the variants leave
    them idle. Hosts lend no idle cores, so on a machine of few cores a baseline would have less than without a plan.

    Parameters
    ----------
    pools : sequence of Pool
    demand : mapping of pool to float [cores]
        Demand of the arriving requests.
    pressure : mapping of pool to float [cores]
        Demand of the arriving and the waiting requests, at the service times of a pool's own cores.
    now : bool
        Whether they do so now; the thresholds to begin and to end differ.
    """
    baselines = [pool for pool in pools if pool.kind == "baseline"]
    variants = [pool for pool in pools if pool.kind != "baseline"]
    if not baselines or not variants or any(len(pool.cores) > 1 for pool in variants):
        return None
    own, wanted = sum(len(pool.cores) for pool in baselines), sum(pressure.get(pool.name, 0.0) for pool in baselines)
    others = sum(demand.get(pool.name, 0.0) for pool in variants)
    if wanted > (RELIEVED if now else SHORT) * own:
        what = f"a demand of {wanted:.1f} with waiting requests"
        return f"its own cores ({own}) are too few for {what}, and each pool of variants has at most one"
    if others < (BUSY if now else IDLE):
        return "the variants have few cores, which are idle"
    return None


def cores_of(pools: Sequence[Pool], borrowing: bool, apart: bool = False) -> dict[str, tuple[int, ...]]:
    """Return the cores of each version; empty if there is nothing to divide.

    Variants whose pool has no core of its own, because there are too few, share the cores of the other variants.

    Parameters
    ----------
    pools : sequence of Pool
    borrowing : bool
        Baselines may run on every core.
    apart : bool
        There are other cores, which operators have given to other versions.
    """
    all_cores = {core for pool in pools for core in pool.cores}
    variants = {core for pool in pools if pool.kind != "baseline" for core in pool.cores}
    if not apart and (len(pools) < 2 or len(all_cores) < 2):
        return {}
    found = {}
    for pool in pools:
        if pool.kind == "baseline":
            mine = all_cores if borrowing or not pool.cores else set(pool.cores)
        else:
            mine = set(pool.cores) or variants or all_cores
        found.update(dict.fromkeys(pool.models, tuple(sorted(mine))))
    return found


def cpus_of(cores: Mapping[str, Sequence[int]], machine: Machine) -> dict[str, str]:
    """Convert the cores of versions to CPUs."""
    return {name: to_cpus(mine, machine) for name, mine in cores.items()}


def to_cpus(cores: Iterable[int], machine: Machine) -> str:
    """Convert cores to CPUs, siblings included."""
    return format_cpus({cpu for core in cores for cpu in machine.cores[core].cpus})


def intermediate_layout(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str] | None:
    """Return an intermediate layout in which versions have gained but not lost CPUs; None if none is needed."""
    step = {}
    both = set()
    for name, cpus in after.items():
        had, has = read_cpus(before.get(name, "")), read_cpus(cpus)
        # A version without CPUs of its own could use all CPUs, so it gains nothing.
        step[name] = format_cpus(had | has) if had else cpus
        both |= {"gains"} if had and has - had else set()
        both |= {"loses"} if had and had - has else set()
    return step if len(both) == 2 else None
