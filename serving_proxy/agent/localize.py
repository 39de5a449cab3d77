# SPDX-License-Identifier: Apache-2.0
"""Make the `desired.json` of a machine from the proxy's state and the files that are there; a pure function.

A version whose files are not there yet is left out, as if hosts were still loading it: its requests go to the baseline.
What the machine serves under that number meanwhile stays. A model whose baseline is missing stays as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from serving_proxy.artifacts.warmups import hash_of_name

Json = dict[str, Any]
_HASH = re.compile(r"#[0-9a-f]{64}$")
WARMUP = "warmup_file"
NO_WARMUP = ""
"""Stands for a warm-up file that nobody has any more."""


def file_key(entry: Mapping[str, Any]) -> str:
    """Return what identifies the files of a version: their path, and their hash if the proxy knows it."""
    files = entry.get("files")
    return f"{entry['path']}#{files['sha256']}" if isinstance(files, dict) and "sha256" in files else str(entry["path"])


def origin_of(key: str) -> str:
    """Return the path that the proxy knows."""
    return _HASH.sub("", key)


def inputs_key(entry: Mapping[str, Any]) -> str:
    """Return what a version needs on a machine besides its files, as JSON; "": nothing.

    These are its warm-up file, if the proxy has a copy of it that is named by its content, and folders that machines
    share.
    """
    copied = (entry.get("annotations") or {}).get("followed") is not None
    folders = {
        "follow": None if copied else entry.get("follow"),
        "checkpoint_dir": (entry.get("config") or {}).get("checkpoint_dir"),
    }
    needed = {name: path for name, path in folders.items() if isinstance(path, str) and path.startswith("/")}
    file = entry.get("warmup_file")
    if isinstance(file, str) and hash_of_name(PurePath(file).name) is not None:
        needed[WARMUP] = file
    return json.dumps(needed, sort_keys=True) if needed else ""


def lost_warmups(entries: Mapping[str, Mapping[str, Any]], inputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each version, by `model/version`, whose warm-up file nobody has any more."""
    return tuple(
        f"{name}: {WARMUP} is left out, as the proxy does not have it"
        for name, entry in entries.items()
        if WARMUP in entry and WARMUP in (key := inputs_key(entry)) and inputs.get(key) == NO_WARMUP
    )


def wanted_files(desired: Mapping[str, Any]) -> dict[str, Json]:
    """Return the entries of all versions of a state, by `model/version`."""
    return {f"{model}/{number}": entry for model, number, entry in _versions(desired)}


def of_machine(desired: Mapping[str, Any], machine: str) -> Json:
    """Return the proxy's state with only this machine's hosts, by their names there: it names them `MACHINE/HOST`."""
    if "hosts" not in desired:
        return {**desired}
    hosts = _of_machine(desired["hosts"], machine)
    body = {key: value for key, value in desired.items() if key != "hosts"}
    return {**body, "hosts": hosts} if hosts else body


def localize(
    desired: Mapping[str, Any],
    paths: Mapping[str, str],
    before: Mapping[str, Any] | None,
    beyond: Collection[str] = (),
    inputs: Mapping[str, str] | None = None,
) -> Json:
    """Return what the hosts of a machine are to serve.

    Parameters
    ----------
    desired : dict
        The state of the machine (`of_machine`), without its generation.
    paths : dict of str to str
        Local path by `file_key`, of all files that are there.
    before : dict or None
        What the hosts are to serve now.
    beyond : collection of str
        Versions (`model/version`) that no host of this machine can serve.
    inputs : dict of str to str, optional
        Local warm-up file by `inputs_key`, of versions whose inputs are all there; None: nothing is looked for.

    Returns
    -------
    dict
        `desired.json` without its generation.
    """
    earlier = (before or {}).get("models", {})
    models = {
        name: found
        for name, model in desired.get("models", {}).items()
        if (found := _model(name, model, paths, earlier.get(name), beyond, inputs)) is not None
    }
    body = {**desired, "models": models}
    hosts = _hosts(desired.get("hosts", {}), models)
    body.pop("hosts", None)
    return {**body, "hosts": hosts} if hosts else body


def _model(
    name: str,
    model: Mapping[str, Any],
    paths: Mapping[str, str],
    before: Mapping[str, Any] | None,
    beyond: Collection[str],
    inputs: Mapping[str, str] | None,
) -> Json | None:
    earlier = (before or {}).get("versions", {})
    versions: Json = {}
    for number, entry in model["versions"].items():
        if f"{name}/{number}" in beyond:
            continue
        if file_key(entry) in paths and (inputs is None or inputs_key(entry) in {"", *inputs}):
            versions[number] = _localized(entry, paths[file_key(entry)], inputs)
        elif number in earlier:
            versions[number] = earlier[number]
    if str(model["baseline"]) not in versions:
        return None if before is None else dict(before)
    there = {int(number) for number in versions}
    found = {**model, "versions": versions}
    routing = model.get("routing")
    if routing is not None:
        arms = [arm for arm in routing.get("arms", []) if arm["version"] in there]
        found["routing"] = {**routing, "arms": arms}
    if "labels" in model:
        found["labels"] = {label: number for label, number in model["labels"].items() if number in there}
    if "shadow" in model:
        found["shadow"] = [shadow for shadow in model["shadow"] if shadow["version"] in there]
    return found


def _localized(entry: Mapping[str, Any], path: str, inputs: Mapping[str, str] | None) -> Json:
    """Return a version's entry with the paths of this machine."""
    found = {**entry, "path": path}
    key = "" if inputs is None else inputs_key(entry)
    if inputs is not None and WARMUP in key:
        found[WARMUP] = inputs[key]
        if inputs[key] == NO_WARMUP:
            del found[WARMUP]
    return found


def _of_machine(hosts: Mapping[str, Any], machine: str) -> Json:
    """Return the settings of a machine's hosts by their names there, and those for the same hosts of all machines."""
    named = {host: entry for host, entry in hosts.items() if "/" not in host}
    prefix = f"{machine}/"
    own = {host.removeprefix(prefix): entry for host, entry in hosts.items() if host.startswith(prefix)}
    return {**named, **{host: {**named.get(host, {}), **entry} for host, entry in own.items()}}


def _hosts(hosts: Mapping[str, Any], models: Mapping[str, Any]) -> Json:
    """Return the settings of hosts without those of versions that are left out."""
    named = {f"{name}/{number}" for name, model in models.items() for number in model["versions"]}
    kept: Json = {}
    for host, entry in hosts.items():
        cpusets = {name: cpus for name, cpus in entry.get("cpusets", {}).items() if name in named}
        found = {key: value for key, value in entry.items() if key != "cpusets"}
        if cpusets:
            found["cpusets"] = cpusets
        if found:
            kept[host] = found
    return kept


def _versions(desired: Mapping[str, Any]) -> Iterator[tuple[str, str, Json]]:
    for name, model in desired.get("models", {}).items():
        for number, entry in model["versions"].items():
            yield name, number, entry
