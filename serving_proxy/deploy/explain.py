# SPDX-License-Identifier: Apache-2.0
"""Explain a model's state in sentences: which version serves which requests, what is pending, and which verb changes
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving_proxy.counters.stats_file import live_state, live_text, precision_now
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
        str(number): [*_version_lines(model, version, hosts), *(cores or {}).get(number, ())]
        for number, version in model.versions.items()
        if version.state != State.STOPPED
    }
    return ExplainView(model=model.name, lines=_model_lines(model, hosts, generation), versions=versions)


def _model_lines(model: Model, hosts: Sequence[HostSeen], generation: int) -> list[str]:
    lines = []
    if model.baseline is None:
        lines.append("It has no baseline: requests are answered NOT_FOUND until a version is deployed.")
    elif model.paused:
        lines.append(
            f"It is paused: all requests go to the baseline {model.baseline}; `pause --off` resumes the experiments."
        )
    else:
        split = [f"{share(model, number):g} % to {number}" for number in (model.baseline, *sorted(model.weights))]
        lines.append("Requests that name no version: " + ", ".join(split) + ".")
    if model.weights:
        key = f"the input '{model.key_input}'" if model.key_input else "a counter if there is none"
        lines.append(f"They are split by `x-routing-key`, or by {key}, in layer '{model.layer_name}'.")
    if model.candidate is not None:
        state = model.versions[model.candidate].state
        lines.append(f"Version {model.candidate} becomes the baseline once it is ready; it is {state}.")
    lines += _rollback_lines(model)
    if model.policy is not None:
        lines.append(f"Its versions come from {model.base_path}: {policy_text(model.policy)}.")
    lines += [f"'{label}' names version {number}." for label, number in sorted(model.labels.items())]
    lines += _host_lines(hosts, generation)
    return lines


def _rollback_lines(model: Model) -> list[str]:
    """Return where `rollback` leads; only a version that can still be served is promised."""
    if model.baseline is None or model.last_good is None:
        return []
    if model.last_good == model.baseline:
        return ["It was rolled back; there is no earlier version to go back to."]
    good = model.versions[model.last_good]
    why = f" ({good.reason})" if good.reason else ""
    if good.state == State.READY:
        return [f"Version {good.number} stays loaded: `rollback` returns to it at once."]
    if good.state in SERVED:
        return [f"Version {good.number} is the last good baseline, but {good.state}{why}: `rollback` has to load it."]
    return [
        f"Version {good.number} was the last good baseline, but is {good.state}{why}: there is nothing to roll back to."
    ]


def _host_lines(hosts: Sequence[HostSeen], generation: int) -> list[str]:
    live = [host for host in hosts if host.alive]
    if not live:
        return ["No host is running: nothing is served."]
    lines = []
    for host in live:
        if host.desired_error:
            lines.append(f"{host.name} refuses desired.json: {host.desired_error}")
        elif host.generation < generation:
            lines.append(
                f"{host.name} has applied generation {host.generation} of desired.json, and {generation} is the newest."
            )
    return lines


def _version_lines(model: Model, version: Version, hosts: Sequence[HostSeen]) -> list[str]:
    lines = [_state_line(version)]
    what = role(model, version)
    if what:
        lines.append(f"It is the {what}." if what in {"baseline", "candidate"} else f"Role: {what}.")
    if version.held:
        named = "only requests that name it can reach it" if version.chosen else "no request can reach it"
        lines.append(f"It is loaded without a share of the traffic: {named}.")
    if version.rejected:
        lines.append("It was rolled back or passed over: only `promote` or `traffic` gives it requests again.")
    if version.shadow:
        lines.append(f"{to_percent(version.shadow):g} % of the baseline's requests are mirrored to it.")
    for ramp in model.ramps:
        if ramp.version == version.number:
            waits = "" if version.state == State.READY and not model.paused else "; the ramp is suspended"
            lines.append(
                f"Its traffic moves to {to_percent(ramp.target):g} %, {ramps.remaining(ramp):.0f} s left{waits}."
            )
    if version.settings.follow is not None:
        held = "" if version.epoch is None else f", and is held at epoch {version.epoch} until `rollback --resume`"
        lines.append(f"It follows {version.settings.follow}{held}.")
    if version.optimize is not None:
        lines.append(f"It was optimized by `graph-tools optimize --precision {version.optimize}`.")
    for host in hosts:
        seen = host.models.get(model.name, {}).get(version.number) if host.alive else None
        if seen is not None:
            live = live_state(host.stats, model.name, version.number)
            details = seen.details | precision_now(live)
            cores = f" on CPUs {details['cpuset']}" if details.get("cpuset") else ""
            precision = f", in {details['precision']}" if details.get("precision") else ""
            lines.append(
                f"{host.name}: {seen.state}{cores}{precision}" + (f", {seen.error}" if seen.error else "") + "."
            )
            if live is not None:
                shown = live_text(live, version.epoch, seen.error or "")
                lines.append(f"{host.name}: {shown}.")
    return lines


def _state_line(version: Version) -> str:
    why = {
        State.NEW: "waits for its validation",
        State.VALIDATING: "its files, path and signature are being checked",
        State.OPTIMIZING: "graph-tools is optimizing it",
        State.LOADING: "hosts load it",
        State.WARMING: "hosts run its warm-up requests",
        State.READY: "every live host serves it",
        State.DRAINING: "its requests in flight are being finished",
        State.FAILED: "it is not served; deploy it again after the cause is fixed",
    }
    reason = f" ({version.reason})" if version.reason else ""
    return f"{version.state}{reason}: {why.get(version.state, 'no host has loaded it')}."
