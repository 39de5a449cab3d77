# SPDX-License-Identifier: Apache-2.0
"""The API's views of models, versions and jobs, made from the records and the hosts' reports.

Shares are in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving_proxy.counters.stats_file import in_flight, live_state, precision_now
from serving_proxy.deploy.jobs import Job
from serving_proxy.experiments.traffic import BUCKETS, to_percent
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model, Policy, PolicyKind, Version
from serving_proxy.records.placement import Placement
from serving_proxy.records.states import State
from serving_proxy.records.view import View

_DETAILS = (
    "state",
    "error",
    "since",
    "load_ms",
    "memory_bytes",
    "sessions",
    "cpuset",
    "precision",
    "in_flight",
)


class JobView(View):
    """A long operation; `state` is `running`, `succeeded`, `failed` or `cancelled`."""

    id: int
    kind: str
    model: str
    version: int
    state: str
    error: str | None
    step: str
    done: int
    total: int | None
    unit: str
    created: float
    finished: float | None


class RampView(View):
    """A share of the traffic that changes over time."""

    version: int
    start: float
    to: float
    seconds: float
    elapsed: float


class VersionView(View):
    """A version; `role` is `baseline`, `variant`, `shadow`, `last good`, `rolled back`, `candidate` or empty.

    `machines`: those that are to have it now, by the placement; null: all.
    """

    version: int
    state: str
    reason: str
    role: str
    traffic: float
    shadow: float
    labels: list[str]
    source: str
    path: str | None
    since: float
    deployed_at: float
    sha256: str | None
    bytes: int | None
    optimize: str | None
    slo_p99_ms: float | None
    settings: dict[str, Any]
    epoch: int | None
    machines: list[str] | None
    hosts: dict[str, dict[str, Any]]


class ModelView(View):
    """A model and its versions."""

    name: str
    baseline: int | None
    candidate: int | None
    last_good: int | None
    paused: bool
    layer: str
    key_input: str | None
    base_path: str | None
    policy: str | None
    labels: dict[str, int]
    ramps: list[RampView]
    versions: list[VersionView]


class ExplainView(View):
    """Sentences that explain a model's state."""

    model: str
    lines: list[str]
    versions: dict[str, list[str]]


def job_view(job: Job) -> JobView:
    """Return the view of a job."""
    return JobView.model_validate(job.to_json())


def model_view(
    model: Model, hosts: Sequence[HostSeen], stopped: bool = False, placement: Placement | None = None
) -> ModelView:
    """Return the view of a model; with `stopped`, include the versions that were undeployed."""
    shown = [version for version in model.versions.values() if stopped or version.state != State.STOPPED]
    return ModelView(
        name=model.name,
        baseline=model.baseline,
        candidate=model.candidate,
        last_good=model.last_good,
        paused=model.paused,
        layer=model.layer_name,
        key_input=model.key_input,
        base_path=model.base_path,
        policy=None if model.policy is None else policy_text(model.policy),
        labels=model.labels,
        ramps=[
            RampView(
                version=ramp.version,
                start=to_percent(ramp.start),
                to=to_percent(ramp.target),
                seconds=ramp.seconds,
                elapsed=ramp.elapsed,
            )
            for ramp in model.ramps
        ],
        versions=[version_view(model, version, hosts, placement) for version in shown],
    )


def version_view(
    model: Model, version: Version, hosts: Sequence[HostSeen], placement: Placement | None = None
) -> VersionView:
    """Return the view of a version."""
    number = version.number
    machines = None if placement is None else placement.wanted(model, number)
    return VersionView(
        version=number,
        state=version.state.value,
        reason=version.reason,
        role=role(model, version),
        traffic=share(model, number),
        shadow=to_percent(version.shadow),
        labels=sorted(label for label, target in model.labels.items() if target == number),
        source=version.source,
        path=version.path,
        since=version.since,
        deployed_at=version.deployed_at,
        sha256=version.sha256,
        bytes=version.bytes,
        optimize=version.optimize,
        slo_p99_ms=version.slo_p99_ms,
        settings=version.settings.model_dump(exclude_defaults=True),
        epoch=version.epoch,
        machines=None if machines is None else sorted(machines),
        hosts={host.name: details for host in hosts if host.alive and (details := _on_host(host, model.name, number))},
    )


def share(model: Model, number: int) -> float:
    """Return the percentage of the requests without a version that this version gets once it is ready."""
    weights = model.weights
    if number == model.baseline:
        return 100.0 if model.paused else to_percent(BUCKETS - sum(weights.values()))
    return 0.0 if model.paused else to_percent(weights.get(number, 0))


def role(model: Model, version: Version) -> str:
    """Return the role of a version, or ""."""
    number = version.number
    if not version.active and version.state != State.FAILED:
        return ""
    candidates = (
        ("baseline", number == model.baseline),
        ("candidate", number == model.candidate and not model.going_back),
        ("variant", number in model.weights or any(ramp.version == number for ramp in model.ramps)),
        ("shadow", version.shadow > 0),
        ("last good", number == model.last_good),
        ("rolled back", version.rejected),
    )
    return next((name for name, holds in candidates if holds), "")


def policy_text(policy: Policy) -> str:
    """Return a version policy as text: `latest 2`, `specific 3,4` or `all`."""
    if policy.kind == PolicyKind.LATEST:
        return f"latest {policy.count}"
    if policy.kind == PolicyKind.SPECIFIC:
        return "specific " + ",".join(str(version) for version in policy.versions)
    return "all"


def _on_host(host: HostSeen, model: str, number: int) -> dict[str, Any]:
    seen = host.models.get(model, {}).get(number)
    if seen is None:
        return {}
    details = {key: seen.details[key] for key in _DETAILS if seen.details.get(key) is not None}
    # `actual.json` is from the last change, statistics are from the last second.
    now, live = in_flight(host.stats, model, number), live_state(host.stats, model, number)
    details |= {} if now is None else {"in_flight": now}
    return details if live is None else details | precision_now(live) | {"live": live}
