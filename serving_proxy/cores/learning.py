# SPDX-License-Identifier: Apache-2.0
"""The usual core time of a version's requests: learned from the first ones, profiled, or taken from its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from cost_model.control import Observation
from cost_model.control.state import Estimate
from serving_proxy.cores.tenants import DeployedTenant

ENOUGH = 200
# Used if nothing is known of a version.
GUESS_US = 1000.0
# Time constant with which the usual cost follows the present one. It is long enough that a change over the day, such as
# more rows in the evening, is not taken for a fault of a version.
FORGET_S = 3600.0


@dataclass(frozen=True)
class Cost:
    """Core time of a version's requests.

    Attributes
    ----------
    path : str
        Folder of the files that it was measured with.
    completed, busy_us : float
        Sums until there were enough requests.
    usual_us : float [us]
        Meaningful once it is `learnt`.
    """

    path: str
    completed: float = 0.0
    busy_us: float = 0.0
    usual_us: float = 0.0

    @property
    def learnt(self) -> bool:
        """Return whether enough requests were seen to recognize an unusual cost."""
        return self.completed >= ENOUGH

    def with_observation(self, observation: Observation) -> Cost:
        """Return the cost after more requests; once it is learned, it stays."""
        if self.learnt or not observation.completed:
            return self
        completed, busy = self.completed + observation.completed, self.busy_us + observation.busy_us
        return replace(self, completed=completed, busy_us=busy, usual_us=busy / completed)

    def moved_toward(self, service_us: float, elapsed_s: float) -> Cost:
        """Return the cost, moved toward the present core time."""
        return replace(self, usual_us=self.usual_us + (service_us - self.usual_us) * min(1.0, elapsed_s / FORGET_S))


Source = Literal["learnt", "seen", "profile", "baseline", "default"]
"""Source of a mean: enough requests, the first requests, a profile, the baseline's figures, or the default."""


def source_of(tenant: DeployedTenant, costs: Mapping[str, Cost], measured: Mapping[str, float]) -> tuple[Source, float]:
    """Return the source of a request's core time, and the time [us].

    Observed requests come first, then a profile; a version that has neither is assumed to be like its baseline.
    """
    for name in (tenant.name, tenant.like):
        cost = costs.get(name) if name is not None else None
        found: tuple[Source, float] | None = None
        if cost is not None and cost.completed and cost.usual_us > 0:
            found = ("learnt" if cost.learnt else "seen"), cost.usual_us
        elif name is not None and measured.get(name, 0.0) > 0:
            found = "profile", measured[name]
        if found is not None:
            return found if name == tenant.name else ("baseline", found[1])
    return "default", GUESS_US


def cost_us(tenant: DeployedTenant, costs: Mapping[str, Cost], measured: Mapping[str, float]) -> float:
    """Return the expected core time [us] of a request."""
    return source_of(tenant, costs, measured)[1]


def learn(
    costs: dict[str, Cost], estimates: Mapping[str, Estimate], seen: Mapping[str, Observation], paths: Mapping[str, str]
) -> dict[str, Estimate]:
    """Add the core time of versions' first requests to `costs`, and return the updated estimates.

    Parameters
    ----------
    costs : dict
        By version; changed.
    estimates, seen : mapping
    paths : mapping of str to str
        The folders that versions were loaded from.
    """
    found = dict(estimates)
    for name, observation in seen.items():
        cost = costs.get(name, Cost(paths[name]))
        if cost.learnt or not observation.completed:
            continue
        costs[name] = cost = cost.with_observation(observation)
        us = max(cost.usual_us, 1.0)
        found[name] = replace(found[name], service_us=us, usual_us=us, slow_s=0.0, well_s=0.0)
    return found


def follow(costs: dict[str, Cost], estimates: Mapping[str, Estimate], elapsed_s: float) -> dict[str, Estimate]:
    """Let the usual costs in `costs` follow the estimates; the controller compares with them from the next step on."""
    found = dict(estimates)
    for name, estimate in estimates.items():
        cost = costs.get(name)
        if cost is not None and cost.learnt:
            costs[name] = cost = cost.moved_toward(estimate.service_us, elapsed_s)
            found[name] = replace(estimate, usual_us=cost.usual_us)
    return found


def to_json(costs: Mapping[str, Cost]) -> dict[str, Any]:
    """Return the learned costs as JSON data."""
    return {name: {"path": cost.path, "us": round(cost.usual_us, 1)} for name, cost in costs.items() if cost.learnt}


def from_json(data: Any) -> dict[str, Cost]:
    """Read the costs from JSON data."""
    kept = data if isinstance(data, dict) else {}
    return {
        str(name): Cost(str(entry["path"]), ENOUGH, ENOUGH * float(entry["us"]), float(entry["us"]))
        for name, entry in kept.items()
        if isinstance(entry, dict) and "path" in entry and float(entry.get("us", 0.0)) > 0
    }


def rates_from_json(data: Any) -> dict[str, float]:
    """Read rates [requests/s] from JSON data."""
    kept = data if isinstance(data, dict) else {}
    return {str(name): float(rate) for name, rate in kept.items() if isinstance(rate, int | float) and rate >= 0}
