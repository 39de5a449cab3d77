# SPDX-License-Identifier: Apache-2.0
"""The division of cores, for the dashboard, for `explain` and in sentences."""

from __future__ import annotations

from cost_model.control import Pool
from cost_model.planning import explain
from serving_proxy.cores import Allocator
from serving_proxy.cores.layout import to_cpus
from serving_proxy.cores.learning import GUESS_US
from serving_proxy.cores.loop import Cores
from serving_proxy.cores.tenants import is_manual
from serving_proxy.records.models import Model
from serving_proxy.records.view import View
from serving_proxy.system.cpus import read_cpus

_MEANS = {
    "learnt": "learned from its requests",
    "seen": "measured from its first requests",
    "profile": "that of the profile",
    "baseline": "that of {0}, because it has had no request",
    "default": "not known yet, and assumed to be {ms}",
}


class CpuView(View):
    """A CPU of the machine."""

    cpu: int
    core: int
    package: int
    busy: float | None


class OwnerView(View):
    """A version and its CPUs; `wanted`: the requested CPUs, if they differ; `own`: these CPUs were given to it."""

    host: str
    model: str
    version: int
    cpus: list[int]
    wanted: list[int] | None
    own: bool


class PoolView(View):
    """Versions that share CPUs; `demand` in busy cores, `reason` of the last change."""

    name: str
    kind: str
    versions: list[str]
    cpus: list[int]
    demand: float
    reason: str


class CoresView(View):
    """The division of cores among versions; `mode` is `off`, `plan` or `control`."""

    mode: str
    pools: list[PoolView]
    notes: list[str]


class MachineView(View):
    """The CPUs, and the versions that run on them."""

    cpus: list[CpuView]
    owners: list[OwnerView]
    cores: CoresView


def cores_view(cores: Cores) -> CoresView:
    """Return the pools."""
    allocator = cores.allocator
    if allocator is None:
        return CoresView(mode="off", pools=[], notes=[])
    demand, cpusets = allocator.demand(), allocator.cpusets
    pools = [
        PoolView(
            name=pool.name,
            kind=pool.kind,
            versions=list(pool.models),
            cpus=sorted(read_cpus(cpusets.get(pool.models[0], ""))) if pool.models else [],
            demand=round(demand[pool.name], 3),
            reason=allocator.reasons.get(pool.name, ""),
        )
        for pool in allocator.pools
    ]
    return CoresView(mode=allocator.mode, pools=pools, notes=_notes(allocator))


def core_lines(cores: Cores, model: Model) -> dict[int, list[str]]:
    """Return sentences that say why each version has its cores."""
    allocator = cores.allocator
    if allocator is None:
        return {}
    pools = {name: pool for pool in allocator.pools for name in pool.models}
    found = {}
    for number, version in model.versions.items():
        name = f"{model.name}/{number}"
        if version.desired and is_manual(version.settings):
            chosen = version.settings.cpuset
            why = f"CPUs {chosen} were given to it" if chosen else "it runs on the threads of its callers"
            found[number] = [f"Cores: {why}, so the proxy divides no cores for it; `deploy --cpuset auto` ends that."]
        elif name in pools:
            found[number] = [*_lines(allocator, name, pools[name]), *_figures(cores, allocator, name)]
    return found


def _figures(cores: Cores, allocator: Allocator, name: str) -> list[str]:
    """Return where the figures come from with which a version is planned."""
    found = []
    for tenant in allocator.tenants:
        if tenant.name == name:
            source, known = allocator.source_of(tenant), cores.profiles.of(tenant)
            mean = _MEANS[source].format(tenant.like or name, ms=f"{GUESS_US / 1000:g} ms")
            shape = f"from {known.source}" if known else "assumed to be exponential, because it has no profile"
            found.append(
                f"Its figures: the core time of a request is {mean}; the distribution of service times is {shape}."
            )
    return found


def _lines(allocator: Allocator, name: str, pool: Pool) -> list[str]:
    assert allocator.state is not None
    estimate, others = allocator.state.estimates[name], [other for other in pool.models if other != name]
    has = allocator.cpusets.get(name)
    shared = f", shared with {', '.join(others[:4])}{' and more' if others[4:] else ''}" if others else ""
    where = f"CPUs {has}{shared}" if has is not None else "all CPUs: there is nothing to divide"
    lines = [
        f"Cores ({allocator.mode}): {where}. Its {estimate.qps:.1f} requests/s of {estimate.service_us / 1000:.2f} ms "
        f"keep {estimate.cores:.2f} cores busy."
    ]
    if pool.kind == "isolated":
        lines.append(f"Its requests take longer than before ({estimate.usual_us / 1000:.2f} ms), so it is isolated.")
    if pool.kind == "baseline" and allocator.borrowing:
        lines.append(f"Besides its own CPUs, {_cpus(allocator, pool)}, it may use those of the variants.")
    if name in allocator.limits:
        limit = allocator.limits[name]
        lines.append(f"Hosts accept at most {limit.most} of its requests at a time: {limit.reason}.")
    if pool.name in allocator.reasons:
        lines.append(f"Last change: {allocator.reasons[pool.name]}.")
    if allocator.plan is not None and name in allocator.plan.qps:
        lines += [f"When it was planned: {why}" for why in explain(allocator.plan, name).why]
    return lines


def _cpus(allocator: Allocator, pool: Pool) -> str:
    return to_cpus(pool.cores, allocator.machine) if allocator.machine is not None else ""


def _notes(allocator: Allocator) -> list[str]:
    found = list(allocator.plan.reasons) if allocator.plan is not None else []
    if allocator.pools and not allocator.cpusets:
        found.append("there is nothing to divide: one pool, or one core")
    found += [f"{name}: at most {limit.most} requests at a time" for name, limit in sorted(allocator.limits.items())]
    if allocator.borrowing:
        found.append("baselines may use the variants' cores as well")
    return found
