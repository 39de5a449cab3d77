# SPDX-License-Identifier: Apache-2.0
"""What hosts of several releases can do, and what they must be able to do for a state; pure functions.

A feature is a key of `desired.json` (`desired:KEY`, and `host:KEY`, `model:KEY`, `version:KEY` of what is in it), or an
op of the library (`op:NAME`).
Hosts report their features; docs/model_host.md explains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.records.hosts import HostSeen

_FIRST_KEYS = {
    "desired": "schema generation memory_limit_bytes maintenance_cpus load_timeout_seconds layers models refused hosts",
    "host": "cpusets",
    "model": "annotations baseline labels request_log routing shadow versions",
    "version": "path config warmup_file cpuset batching tables limits priority traffic follow epoch files annotations",
    "op": "RecApplySegments RecCollapseRows RecCrossNetwork RecDenseTower RecDotInteraction RecEmbeddingGroup "
    "RecEmbeddingTable RecExpandRows RecFieldOuter RecFmInteraction RecHeadAttention RecInitializeEmbeddingTable "
    "RecInitializeLiveModel RecLiveModel RecPinView RecProduct RecRecurrentLayer RecSequencePooling RecTargetAttention "
    "RecViewVariable",
}
FIRST = frozenset(f"{level}:{name}" for level, names in _FIRST_KEYS.items() for name in names.split())
"""The features of hosts that report none, because their release did not know features. Nothing is ever added here."""

_ALWAYS = frozenset({"desired:schema", "desired:generation", "desired:models", "model:baseline", "model:versions"})


def features_of(host: HostSeen) -> frozenset[str]:
    """Return what a host can do."""
    return FIRST if host.features is None else host.features


def needs_of_version(entry: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that a version's entry of `desired.json` needs."""
    return frozenset({f"version:{key}" for key in entry} | set(entry.get("needs") or ()))


def needs_of_model(entry: Mapping[str, Any]) -> frozenset[str]:
    """Return the features that a model's entry of `desired.json` needs, without those of its versions."""
    return frozenset(f"model:{key}" for key in entry)


def named(host: HostSeen) -> str:
    """Return a host's name and release."""
    return f"{host.name} (release {host.version})" if host.version else f"{host.name} (an earlier release)"


def lacking(host: HostSeen, needs: Iterable[str]) -> str:
    """Return a sentence that names the features which a host lacks; "" if it has all of them."""
    missing = sorted(set(needs) - features_of(host))
    return f"needs {', '.join(missing)}, which {named(host)} lacks" if missing else ""


@dataclass(frozen=True)
class Understood:
    """The part of a state that the hosts of a machine understand.

    Attributes
    ----------
    desired : dict
        The state without keys that a host does not know. A host would refuse the whole state or model because of them.
    versions : dict of str to str
        `model/version`: why it is not for this machine, as none of its hosts can serve it. Versions that some of the
        hosts can serve are not listed: the others refuse them.
    left_out : tuple of str
        Keys that were left out, and why.
    """

    desired: dict[str, Any]
    versions: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def understood(desired: Mapping[str, Any], hosts: Sequence[HostSeen]) -> Understood:
    """Return what live hosts understand of a state; all of it if none is alive."""
    live = [host for host in hosts if host.alive]
    left_out: list[str] = []
    versions: dict[str, str] = {}
    found = _known_keys("desired", desired, live, left_out, "")
    if "hosts" in found:
        found["hosts"] = {
            host: _known_keys("host", entry, live, left_out, f"hosts.{host}: ")
            for host, entry in found["hosts"].items()
        }
    models: dict[str, Any] = {}
    for name, model in desired.get("models", {}).items():
        models[name] = _known_keys("model", model, live, left_out, f"{name}: ")
        for number, entry in model["versions"].items():
            reasons = [lacking(host, needs_of_version(entry)) for host in live]
            if reasons and all(reasons):
                versions[f"{name}/{number}"] = f"not on this machine: {reasons[0]}"
    return Understood({**found, "models": models}, versions, tuple(left_out))


def _known_keys(
    level: str, entry: Mapping[str, Any], live: Sequence[HostSeen], left_out: list[str], prefix: str
) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for key, value in entry.items():
        feature = f"{level}:{key}"
        unaware = next((host for host in live if feature not in features_of(host)), None)
        if unaware is not None and feature not in _ALWAYS:
            left_out.append(f"{prefix}{key} is left out, as {named(unaware)} lacks {feature}")
        else:
            known[key] = value
    return known
