# SPDX-License-Identifier: Apache-2.0
"""Write state directories of hosts like a control plane, and wait until a host has applied them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processor
from helpers.system.waiting import wait_until

_ALL_CPUS = ",".join(map(str, sorted(os.sched_getaffinity(0))))


class StateDirectory:
    """Own a folder with desired.json, whose generation rises with every change."""

    def __init__(self, path: Path) -> None:
        """Create the folder."""
        self.path = path
        self.generation = 0
        path.mkdir(exist_ok=True)

    def desire(self, models: dict[str, Any], **more: Any) -> int:
        """Replace desired.json; return its generation."""
        self.generation += 1
        # If all CPUs are busy with other tests, work that only uses idle time would never finish.
        desired = {"schema": 1, "generation": self.generation, "maintenance_cpus": _ALL_CPUS, "models": models}
        self.write(json.dumps(desired | more))
        return self.generation

    def write(self, text: str) -> None:
        """Replace the text of desired.json."""
        beside = self.path / ".desired.json"
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self.path / "desired.json")

    def actual(self, host: str = "host-0") -> dict[str, Any]:
        """Return the content of a host's actual.json."""
        actual: dict[str, Any] = json.loads((self.path / "hosts" / host / "actual.json").read_text(encoding="utf-8"))
        return actual

    def serve(self, host: processor.Host, models: dict[str, Any], **more: Any) -> None:
        """Replace desired.json and wait until everything in it is ready, and nothing else is loaded."""
        generation = self.desire(models, **more)
        wanted = {(name, int(number)) for name, model in models.items() for number in model["versions"]}
        wait_for_status(
            host, lambda status: status["generation"] == generation and versions_in(status, "ready") == wanted
        )


def model_of(path: Path, number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a model with one version; `more` are members of the version."""
    return {"baseline": number, "versions": {str(number): {"path": str(path)} | more}}


def entry(host: processor.Host, model: str, number: int) -> dict[str, Any]:
    """Return the entry of a version in the status."""
    version: dict[str, Any] = host.status()["models"][model]["versions"][str(number)]
    return version


def versions_in(status: dict[str, Any], *states: str) -> set[tuple[str, int]]:
    """Return all versions if each is in one of the states and none is being replaced, otherwise an empty set."""
    found = {
        (name, int(number)): (version["state"], version["replacement"])
        for name, model in status["models"].items()
        for number, version in model["versions"].items()
    }
    settled = all(state in states and replacement is None for state, replacement in found.values())
    return set(found) if settled else set()


def wait_for_status(host: processor.Host, condition: Callable[[dict[str, Any]], bool], timeout: float = 60.0) -> None:
    """Wait until the status of a host satisfies a condition."""
    wait_until(lambda: condition(host.status()), f"{host.status()}", timeout=timeout)
