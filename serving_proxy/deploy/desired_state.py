# SPDX-License-Identifier: Apache-2.0
"""Make `desired.json` from the models' records, without its generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from serving_proxy.artifacts.urls import is_url
from serving_proxy.deploy.changes import arms_data
from serving_proxy.records.features import FIRST
from serving_proxy.records.models import Model, Record, Settings, Version, VersionOptions
from serving_proxy.records.placement import ModelPlacement, Placement

SCHEMA = 1
# Annotation of a model that has machines of its own.
PLACEMENT = "placement"
_HOSTS_LOAD_TIMEOUT_S = 600.0


class HostSettings(Record):
    """The settings in `desired.json` that belong to no single model.

    Attributes
    ----------
    memory_limit_bytes : int
        0: the hosts' own limit.
    maintenance_cpus : str or None
        CPUs on which versions are loaded and warmed up.
    load_timeout_seconds : float
        For versions that set none; 0: no limit.
    cpusets : dict
        Host, `model/version`, CPUs: replaces the version's own setting.
    limits : dict
        `model/version`, number of its requests that each host may have at a time: replaces a larger limit of its own.
    divided_cpus : int
        Number of CPUs that are divided among versions; 0: each version may use all. If they are divided, a version
        whose settings do not set the number of threads gets as many threads as there are CPUs, divided by its sessions.
    drained : tuple of str
        Hosts that finish their requests, end, and are not ready when they are started again: `MACHINE/HOST`, or
        `MACHINE/*` for all hosts of a machine.
    placed_cores : bool
        Whether versions on other machines get the cores of the placement.
    """

    memory_limit_bytes: int = Field(default=0, ge=0)
    maintenance_cpus: str | None = None
    load_timeout_seconds: float = Field(default=_HOSTS_LOAD_TIMEOUT_S, ge=0)
    cpusets: dict[str, dict[str, str]] = Field(default_factory=dict)
    limits: dict[str, int] = Field(default_factory=dict)
    divided_cpus: int = Field(default=0, ge=0)
    drained: tuple[str, ...] = ()
    placed_cores: bool = False


def render(models: Mapping[str, Model], settings: HostSettings, placement: Placement | None = None) -> dict[str, Any]:
    """Return the desired state: the versions that have passed their gates and are not being taken out.

    It is that of all machines together; `serving_proxy.fleet.machine_state` makes that of each machine from it.

    Annotations, which hosts ignore, contain what a proxy needs that has lost its database
    (`serving_proxy.deploy.adoption`).
    """
    body: dict[str, Any] = {"schema": SCHEMA, "models": {}}
    if settings.memory_limit_bytes:
        body["memory_limit_bytes"] = settings.memory_limit_bytes
    if settings.maintenance_cpus:
        body["maintenance_cpus"] = settings.maintenance_cpus
    if settings.load_timeout_seconds != _HOSTS_LOAD_TIMEOUT_S:
        body["load_timeout_seconds"] = settings.load_timeout_seconds
    for name, model in sorted(models.items()):
        rendered = render_model(model, settings, None if placement is None else placement.models.get(name))
        if rendered is not None:
            body["models"][name] = rendered
    refused = {name: reason for name, model in sorted(models.items()) if (reason := _refusal(model))}
    if refused:
        body["refused"] = refused
    named = {f"{name}/{number}" for name, entry in body["models"].items() for number in entry["versions"]}
    hosts: dict[str, dict[str, Any]] = {
        host: {"cpusets": kept}
        for host, cpusets in sorted(settings.cpusets.items())
        if (kept := {version: cpus for version, cpus in sorted(cpusets.items()) if version in named})
    }
    for host in settings.drained:
        hosts[host] = {**hosts.get(host, {}), "drained": True}
    if hosts:
        body["hosts"] = hosts
    return body


def _refusal(model: Model) -> dict[str, Any]:
    """Return what hosts answer to status requests for versions that no host is to load."""
    return {
        str(number): {"status": version.failure or "UNKNOWN", "message": version.reason}
        for number, version in model.versions.items()
        if version.refused
    }


def render_model(model: Model, host: HostSettings, placed: ModelPlacement | None = None) -> dict[str, Any] | None:
    """Return the entry of a model; None if hosts are not to serve it yet."""
    versions = {number: version for number, version in model.versions.items() if version.desired}
    # Without its baseline, a model would refuse the requests that no arm selects, and clients could not see why.
    if model.baseline not in versions:
        return None
    rendered: dict[str, Any] = {
        "baseline": model.baseline,
        "routing": _routing(model, set(versions)),
        "versions": {str(number): _version(model, version, host) for number, version in versions.items()},
    }
    labels = {label: number for label, number in sorted(model.published.items()) if number in versions}
    if labels:
        rendered["labels"] = labels
    shadow = [
        {"version": n, "weight": version.shadow}
        for n, version in versions.items()
        if version.shadow and n != model.baseline
    ]
    if shadow:
        rendered["shadow"] = shadow
    if model.request_log is not None:
        rendered["request_log"] = model.request_log.model_dump()
    kept = model_annotations(model)
    if placed is not None:
        kept[PLACEMENT] = _placement_annotation(model, placed, versions, host.placed_cores)
    if kept:
        rendered["annotations"] = kept
    return rendered


def _placement_annotation(
    model: Model, placed: ModelPlacement, versions: Iterable[int], has_cores: bool
) -> dict[str, Any]:
    """Return the placement of a model: its record, and the versions that each machine is to have."""
    on: dict[str, list[int]] = {}
    for number in versions:
        for machine in sorted(placed.wanted(model, number)):
            on.setdefault(machine, []).append(number)
    made: dict[str, Any] = {
        "record": placed.model_dump(mode="json", exclude_defaults=True),
        "on": dict(sorted(on.items())),
    }
    if has_cores:
        # A generation of its own: agents that run ask for a state only if there is a new one.
        made["cores"] = True
    return made


def model_annotations(model: Model) -> dict[str, Any]:
    """Return the fields of a model that hosts do not need, but a proxy that has lost its database does."""
    fields = {"base_path", "policy", "settings", "candidate", "going_back", "last_good", "guard", "ramps"}
    kept = model.model_dump(mode="json", include=fields, exclude_defaults=True)
    if model.labels != model.published:
        kept["labels"] = dict(sorted(model.labels.items()))
    return kept


def version_annotations(version: Version, rendered: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same for a version, without what its entry `rendered` already contains."""
    fields = {"chosen", "rejected", "stored", *VersionOptions.model_fields} - {"settings"}
    if is_url(version.source):
        # A proxy that has lost its database need not ask the store.
        fields.add("stamp")
    kept = version.model_dump(mode="json", include=fields, exclude_defaults=True)
    if version.source != version.path:
        kept["source"] = version.source
    if version.optimize is not None:
        # Part of the name of its artifact.
        kept["deployed_at"] = version.deployed_at
    if version.held and "traffic" not in rendered:
        kept["held"] = True
    own = _settings(version.settings)
    if any(rendered.get(key) != own.get(key) for key in ("config", "limits")):
        kept["settings"] = {key: own[key] for key in ("config", "limits") if key in own}
    return kept


def _routing(model: Model, there: set[int]) -> dict[str, Any]:
    return {
        "layer": model.layer_name,
        "key": {"input": model.key_input} if model.key_input else None,
        "arms": [arm for arm in arms_data(model) if arm["version"] in there],
        "paused": model.paused,
    }


def _version(model: Model, version: Version, host: HostSettings) -> dict[str, Any]:
    rendered: dict[str, Any] = {"path": version.path} | _settings(version.settings)
    threads = worker_threads(version.settings, host.divided_cpus) if host.divided_cpus else None
    if threads is not None:
        rendered["config"] = {**version.settings.config, "worker_threads": threads}
    most = host.limits.get(f"{model.name}/{version.number}")
    if most is not None:
        own = rendered.setdefault("limits", {})
        own["max_in_flight"] = min(most, own.get("max_in_flight", most))
    if version.epoch is not None:
        rendered["epoch"] = version.epoch
    reachable = version.number in {*model.published.values(), *model.weights, model.baseline}
    if version.held and not reachable and not version.chosen:
        rendered["traffic"] = False
    if version.sha256 is not None:
        rendered["files"] = {"sha256": version.sha256} | ({"seal": version.seal} if version.seal else {})
    # What all hosts have is not named, so that those which do not know this key accept the entry.
    needs = sorted({*version.needs} - FIRST)
    if needs:
        rendered["needs"] = needs
    kept = version_annotations(version, rendered)
    if kept:
        rendered["annotations"] = kept
    return rendered


def worker_threads(settings: Settings, cpus: int) -> int | None:
    """Return the number of threads that a session needs to use all CPUs its version may get; None: keep the setting.

    A version with CPUs of its own runs on the threads of its sessions. By default a session has one thread, so it would
    use at most one core. An operator's `cpuset` does not matter here: it can change without a reload, and hosts run no
    more requests at once than a session has CPUs. The setting is kept if it is given, and if requests are batched,
    because the threads have another meaning then.
    """
    named = {"worker_threads", "execution"} & settings.config.keys()
    if named or (settings.batching is not None and settings.batching.mode != "off"):
        return None
    sessions = settings.config.get("session_num", 1)
    if not isinstance(sessions, int) or isinstance(sessions, bool) or sessions < 1:
        return None
    return max(1, -(-cpus // sessions))


def _settings(settings: Settings) -> dict[str, Any]:
    values = {name: getattr(settings, name) for name in Settings.model_fields}
    return {
        name: value.model_dump(exclude_none=True) if isinstance(value, Record) else value
        for name, value in values.items()
        if value not in (None, {}, 0)
    }
