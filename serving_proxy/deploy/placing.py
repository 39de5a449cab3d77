# SPDX-License-Identifier: Apache-2.0
"""Read a placement, and change from one placement to the next without a gap. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from serving_proxy.deploy.deployment import check_name
from serving_proxy.errors import InvalidError
from serving_proxy.field_faults import first_fault
from serving_proxy.records.agents import check_machine
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model
from serving_proxy.records.placement import ModelPlacement, Placement, Replica
from serving_proxy.store import Repository

# What `cost-model place --json` writes.
SCHEMA = "placement/1"
SETTING = "placement"
_MOST_REPLICAS = 1_000_000


def stored_placement(repository: Repository) -> Placement | None:
    """Read the placement that is in force.

    Raises
    ------
    ProxyError
        The record is damaged, or a later release wrote it.
    """
    found = repository.setting(SETTING)
    with repository.reporting_damage("placement"):
        return None if found is None else Placement.model_validate(found)


def by_machine(hosts: Iterable[HostSeen]) -> dict[str, list[HostSeen]]:
    """Return hosts by their machine; those of the proxy's own machine are under ""."""
    found: dict[str, list[HostSeen]] = {}
    for host in hosts:
        found.setdefault(host.machine, []).append(host)
    return found


def hosts_for(hosts: Sequence[HostSeen], placement: Placement | None, model: Model, number: int) -> Sequence[HostSeen]:
    """Return the hosts that are to have a version; hosts of the proxy's own machine have all."""
    machines = None if placement is None else placement.wanted(model, number)
    return hosts if machines is None else [host for host in hosts if host.machine in machines or not host.machine]


def judging_hosts(
    hosts: Mapping[str, Sequence[HostSeen]], placement: Placement, model: Model, number: int
) -> Sequence[HostSeen] | None:
    """Return the hosts whose reports decide about the state of a version; None: all.

    A version that moves is judged by the hosts on which it is ready, if there are any: that its new machines do not
    have it yet, or have no room for it, does not make it fail.

    Parameters
    ----------
    hosts : mapping of str to sequence of HostSeen
        By machine.
    placement : Placement
    model : Model
    number : int
    """
    machines = placement.wanted(model, number)
    if machines is None:
        return None
    there = [host for machine in ("", *sorted(machines)) for host in hosts.get(machine, ())]
    if number not in placement.models[model.name].leaving:
        return there
    ready = [host for host in there if host.alive and _state(host, model.name, number) == "ready"]
    return ready or there


def _state(host: HostSeen, name: str, number: int) -> str | None:
    seen = host.models.get(name, {}).get(number)
    return None if seen is None else seen.state


def read_placement(data: Mapping[str, Any], handover_s: float, now: float) -> Placement:
    """Read a placement.

    Parameters
    ----------
    data : mapping
        The JSON of `cost-model place --json`; only `schema`, `replicas` and `unplaced` are used.
    handover_s : float [s]
    now : float [s since 1970]

    Raises
    ------
    InvalidError
        It is no placement, or models lack a place.
    """
    if data.get("schema") != SCHEMA:
        raise InvalidError(f"placement: schema {data.get('schema')!r:.80}, expected '{SCHEMA}' of `cost-model place`")
    for missing in _list(data.get("unplaced"), "unplaced"):
        name, why = (missing.get("name"), missing.get("why")) if isinstance(missing, dict) else (missing, None)
        raise InvalidError(f"placement: model {name!r:.150} has no place ({why}), expected a place for each model")
    replicas = _list(data.get("replicas"), "replicas")
    if not 0 < len(replicas) <= _MOST_REPLICAS:
        raise InvalidError(f"placement: {len(replicas)} replicas, expected 1 to {_MOST_REPLICAS}")
    found: dict[str, dict[tuple[str, int | None], Replica]] = {}
    for place, entry in enumerate(replicas):
        model, replica = _replica(entry, f"placement: replicas[{place}]")
        before = found.setdefault(model, {}).setdefault((replica.machine, replica.version), replica)
        if before != replica:
            raise InvalidError(
                f"placement: {model} is on {replica.machine} twice with different cores, expected a version for each"
            )
    models = {name: ModelPlacement(replicas=tuple(entries.values())) for name, entries in sorted(found.items())}
    return Placement(models=models, handover_s=handover_s, applied=now)


def changed(
    before: Placement | None, after: Placement, models: Mapping[str, Model], machines: Iterable[str]
) -> Placement:
    """Return a placement in which machines keep what they have until the new machines have it.

    Parameters
    ----------
    before : Placement or None
        The placement in force; None: all machines have all models.
    after : Placement
    models : mapping of str to Model
    machines : iterable of str
        All machines that are known.
    """
    everywhere = frozenset(machines)
    made = {}
    for name, placed in after.models.items():
        model, leaving = models.get(name), {}
        for number, version in {} if model is None else model.versions.items():
            if model is None or not version.desired:
                continue
            had = None if before is None else before.wanted(model, number)
            left = (everywhere if had is None else had) - placed.target(model, number)
            if left:
                leaving[number] = tuple(sorted(left))
        made[name] = placed.model_copy(update={"leaving": leaving})
    return after.model_copy(update={"models": made})


def waits_for(placed: ModelPlacement, model: Model, hosts: Sequence[HostSeen]) -> str | None:
    """Return what is missing until the machines that a model leaves may unload it; None: nothing.

    Each version that they have, also one that was deployed during the move, must be ready on every host of its new
    machines.
    """
    for number, version in model.versions.items():
        target = placed.target(model, number)
        if not version.desired or placed.wanted(model, number) == target:
            continue
        if _is_broken(placed, model.name, number, hosts):
            continue
        for machine in sorted(target):
            there = [host for host in hosts if host.machine == machine and host.alive and host.state == "ready"]
            if not there:
                return f"{machine}: has no host that is ready"
            for host in there:
                seen = host.models.get(model.name, {}).get(number)
                if seen is None or seen.state != "ready":
                    state = "not there yet" if seen is None else f"{seen.state} {seen.error or ''}".strip()
                    return f"{host.name}: {model.name}/{number} is {state}"
    return None


def _is_broken(placed: ModelPlacement, name: str, number: int, hosts: Sequence[HostSeen]) -> bool:
    """Return whether no host of the machines that a version leaves could load it either."""
    # A version that was deployed during the move is on all machines that the model leaves.
    machines = placed.leaving.get(number, ()) or placed.left
    left = [host for host in hosts if host.machine in machines and host.alive]
    seen = [host.models.get(name, {}).get(number) for host in left]
    return bool(seen) and all(version is not None and version.has_failed for version in seen)


def _replica(entry: Any, place: str) -> tuple[str, Replica]:
    if not isinstance(entry, dict):
        raise InvalidError(f"{place}: {entry!r:.80}, expected an object")
    values = {}
    for key in ("model", "machine"):
        if not isinstance(entry.get(key), str):
            raise InvalidError(f"{place}: {key} {entry.get(key)!r:.80}, expected a text")
        values[key] = entry[key]
    version = entry.get("version")
    if version is not None and not (isinstance(version, str) and version.isascii() and version.isdecimal()):
        raise InvalidError(f"{place}: version {version!r:.80}, expected the number of a version as text, or null")
    number = None if version is None else int(version)
    try:
        replica = Replica(
            machine=check_machine(values["machine"]),
            version=number,
            cores=entry.get("cores", 0),
            core_list=entry.get("core_list", ""),
        )
    except ValidationError as error:
        raise InvalidError(f"{place}: {first_fault(error)}") from error
    except InvalidError as error:
        raise InvalidError(f"{place}: {error}") from error
    return check_name(values["model"]), replica


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value or [], list):
        raise InvalidError(f"placement: {name} {value!r:.80}, expected a list")
    return value or []
