# SPDX-License-Identifier: Apache-2.0
"""Explain a model's state in sentences: which version serves which requests, what is pending, and which verb changes
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving_proxy.deploy.views import ExplainView, policy_text, role, share
from serving_proxy.experiments import ramps
from serving_proxy.experiments.traffic import to_percent
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model, Version
from serving_proxy.records.states import SERVED, State


def explain(
    model: Model, hosts: Sequence[HostSeen], generation: int, cores: Mapping[int, Sequence[str]] | None = None
) -> ExplainView:
    """Explain a model and each version that is not stopped; `cores` contains lines about the CPUs of versions."""
    versions = {
        str(number): [*_version(model, version, hosts), *(cores or {}).get(number, ())]
        for number, version in model.versions.items()
        if version.state != State.STOPPED
    }
    return ExplainView(model=model.name, lines=_model(model, hosts, generation), versions=versions)


def _model(model: Model, hosts: Sequence[HostSeen], generation: int) -> list[str]:
    lines = []
    if model.baseline is None:
        lines.append("It has no baseline: requests are answered NOT_FOUND until a version is deployed.")
    elif model.paused:
        lines.append(f"It is paused: everything goes to the baseline {model.baseline}; `pause --off` ends that.")
    else:
        split = [f"{share(model, number):g} % to {number}" for number in (model.baseline, *sorted(model.weights))]
        lines.append("Requests that name no version: " + ", ".join(split) + ".")
    if model.weights:
        key = f"the input '{model.key_input}'" if model.key_input else "a running number where there is none"
        lines.append(f"They are split by `x-routing-key`, else by {key}, in layer '{model.layer_name}'.")
    if model.candidate is not None:
        state = model.versions[model.candidate].state
        lines.append(f"Version {model.candidate} becomes the baseline once it is ready; it is {state}.")
    lines += _way_back(model)
    if model.policy is not None:
        lines.append(f"Its versions come from {model.base_path}: {policy_text(model.policy)}.")
    lines += [f"'{label}' names version {number}." for label, number in sorted(model.labels.items())]
    lines += _hosts(hosts, generation)
    return lines


def _way_back(model: Model) -> list[str]:
    """Return where `rollback` leads; only a version that can still be served is promised."""
    if model.baseline is None or model.last_good is None:
        return []
    if model.last_good == model.baseline:
        return ["It was rolled back; there is no earlier version to go back to."]
    good = model.versions[model.last_good]
    why = f" ({good.reason})" if good.reason else ""
    if good.state == State.READY:
        return [f"Version {good.number} is kept warm: `rollback` returns to it at once."]
    if good.state in SERVED:
        return [
            f"Version {good.number} is the last good one, and is {good.state}{why}; after a `rollback` it has to load."
        ]
    return [f"Version {good.number} was the last good one and is {good.state}{why}: there is nothing to roll back to."]


def _hosts(hosts: Sequence[HostSeen], generation: int) -> list[str]:
    live = [host for host in hosts if host.alive]
    if not live:
        return ["No host is running: nothing is served."]
    lines = []
    for host in live:
        if host.desired_error:
            lines.append(f"{host.name} refuses desired.json: {host.desired_error}")
        elif host.generation < generation:
            lines.append(f"{host.name} has generation {host.generation} and is on its way to {generation}.")
    return lines


def _version(model: Model, version: Version, hosts: Sequence[HostSeen]) -> list[str]:
    lines = [_state_line(version)]
    what = role(model, version)
    if what:
        lines.append(f"It is the {what}." if what in {"baseline", "candidate"} else f"Role: {what}.")
    if version.held:
        named = "only requests that name it" if version.chosen else "no arm and no request"
        lines.append(f"It is loaded without a share of the traffic: {named} may choose it.")
    if version.rejected:
        lines.append("It was rolled back or passed over: only `promote` or `traffic` gives it requests again.")
    if version.shadow:
        lines.append(f"It gets copies of {to_percent(version.shadow):g} % of the baseline's requests.")
    for ramp in model.ramps:
        if ramp.version == version.number:
            waits = "" if version.state == State.READY and not model.paused else "; its clock stands still"
            lines.append(
                f"Its share moves to {to_percent(ramp.target):g} %, {ramps.remaining(ramp):.0f} s to go{waits}."
            )
    if version.optimize is not None:
        lines.append(f"It is served as `graph-tools optimize --precision {version.optimize}` wrote it.")
    for host in hosts:
        seen = host.models.get(model.name, {}).get(version.number) if host.alive else None
        if seen is not None:
            cores = f" on CPUs {seen.details['cpuset']}" if seen.details.get("cpuset") else ""
            precision = f", in {seen.details['precision']}" if seen.details.get("precision") else ""
            lines.append(
                f"{host.name}: {seen.state}{cores}{precision}" + (f", {seen.error}" if seen.error else "") + "."
            )
    return lines


def _state_line(version: Version) -> str:
    why = {
        State.NEW: "waits for its validation",
        State.VALIDATING: "its files, place and signature are being checked",
        State.OPTIMIZING: "graph-tools writes the model that will be served",
        State.LOADING: "hosts load it",
        State.WARMING: "hosts run its warm-up requests",
        State.READY: "every live host answers with it",
        State.DRAINING: "its last requests are being answered",
        State.FAILED: "it is not served; deploy it again once the reason is gone",
    }
    reason = f" ({version.reason})" if version.reason else ""
    return f"{version.state}{reason}: {why.get(version.state, 'no host holds it')}."
