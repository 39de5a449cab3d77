# SPDX-License-Identifier: Apache-2.0
"""What the driver does with the cluster: look at it, and start, drain and remove actors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.ray_driver.lease_holder import Leases
from serving_proxy.ray_driver.library import import_ray
from serving_proxy.replicas.records import is_replica

_ANSWER_S = 1.0


@dataclass
class _Known:
    """An actor, the status that was asked for, and the last one that it has told."""

    handle: Any
    asked: Any = None
    heard: float = field(default_factory=time.monotonic)
    told: dict[str, Any] = field(default_factory=dict)
    answers: bool = False


class Cluster:
    """The cluster, as this process is connected to it.

    Parameters
    ----------
    address : str
        `auto`, or that of Ray's head node.
    namespace : str
        In which the actors have their names.

    Attributes
    ----------
    leases : Leases
    """

    def __init__(self, address: str, namespace: str) -> None:
        self._ray = ray = import_ray()
        ray.init(
            address=address, namespace=namespace, log_to_driver=False, configure_logging=False, include_dashboard=False
        )
        self.leases = Leases(ray)
        self._known: dict[str, _Known] = {}
        self._faults: dict[str, str] = {}

    def look(self) -> dict[str, Any]:
        """Return nodes, replicas and faults, as `ClusterSeen` has them."""
        ray = self._ray
        names = {name for name in ray.util.list_named_actors() if is_replica(name)}
        for name in names - self._known.keys():
            try:
                self._known[name] = _Known(ray.get_actor(name))
            except ValueError:
                # It has just ended.
                continue
        self._ask(names)
        for name in self._known.keys() - names:
            known = self._known.pop(name)
            self._note_end(name, known)
        return {
            "here": self._ray.util.get_node_ip_address(),
            "nodes": self._nodes(),
            "replicas": [self._replica(name, known) for name, known in self._known.items()],
            "faults": self._faults,
        }

    def create(self, name: str, spec: Mapping[str, Any], access: Mapping[str, Any]) -> None:
        """Start a replica; Ray chooses its node, if there is one with enough free CPUs."""
        from serving_proxy.ray_driver.placed import PlacedReplica

        actor = self._ray.remote(PlacedReplica)
        options: dict[str, Any] = {
            "name": name,
            # It goes on when this process ends, and is started again when it or its node ends.
            "lifetime": "detached",
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": 4,
            "num_cpus": spec["cores"],
            "scheduling_strategy": "SPREAD",
        }
        if spec.get("memory_mb"):
            options["memory"] = int(spec["memory_mb"]) * 1_000_000
        self._faults.pop(name, None)
        handle = actor.options(**options).remote(name, dict(spec), dict(access))
        # It tells nothing until it has a node.
        self._known[name] = _Known(handle, told={"spec": spec["identity"]})

    def follow(self, name: str, access: Mapping[str, Any]) -> None:
        """Tell a replica which proxies to follow."""
        self._handle(name).follow.remote(dict(access))

    def drain(self, name: str) -> None:
        """Let a replica finish its requests."""
        self._handle(name).drain.remote()

    def remove(self, name: str) -> None:
        """End a replica that has been drained, has no node, or does not answer."""
        handle = self._handle(name)
        known = self._known.get(name)
        has_told = known is not None and "node" in known.told
        self._ray.wait([handle.end.remote()], timeout=10.0 if has_told else _ANSWER_S)
        self._ray.kill(handle)
        self._known.pop(name, None)

    def restart(self, name: str) -> None:
        """Start the process of a replica again."""
        self._ray.kill(self._handle(name), no_restart=False)
        self._known.pop(name, None)

    def request(self, count: int, cores: int) -> None:
        """Ask the autoscaler of the cluster for nodes that have room for this number of replicas."""
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[{"CPU": cores}] * count)

    def _handle(self, name: str) -> Any:
        known = self._known.get(name)
        return known.handle if known is not None else self._ray.get_actor(name)

    def _ask(self, names: set[str]) -> None:
        """Ask all replicas for their status, and wait a moment for those that answer."""
        ray = self._ray
        for known in self._known.values():
            if known.asked is None:
                known.asked = known.handle.status.remote()
        waits = {known.asked: known for known in self._known.values()}
        if not waits:
            return
        done, _ = ray.wait(list(waits), num_returns=len(waits), timeout=_ANSWER_S)
        for ref in done:
            known = waits[ref]
            known.asked = None
            try:
                known.told = ray.get(ref)
                known.heard, known.answers = time.monotonic(), True
            except ray.exceptions.RayError as error:
                known.told, known.answers = {**known.told, "note": _text(error)}, False
        for known in self._known.values():
            known.answers = known.answers and known.asked is None

    def _note_end(self, name: str, known: _Known) -> None:
        """Keep why an actor has ended for good, such as an error when it began."""
        note = known.told.get("note", "")
        if not known.told.get("drained"):
            self._faults[name] = note or "its actor has ended"

    def _replica(self, name: str, known: _Known) -> dict[str, Any]:
        return {
            **known.told,
            "name": name,
            "answers": known.answers,
            "silent_s": time.monotonic() - known.heard,
        }

    def _nodes(self) -> list[dict[str, Any]]:
        drains = self._draining()
        found = []
        for node in self._ray.nodes():
            if node["Alive"]:
                name = node["NodeID"]
                values = {"id": name, "address": node["NodeManagerAddress"], "cpus": node["Resources"].get("CPU", 0.0)}
                found.append({**values, "drains": name in drains, "left_s": drains.get(name)})
        return found

    def _draining(self) -> dict[str, float | None]:
        """Return how long each node that Ray takes away stays [s]; None: without a deadline."""
        # There is no public function for this; Ray Serve uses the same one.
        from ray._private.state import state

        now_ms = time.time() * 1e3
        found: Mapping[str, int] = state.get_draining_nodes()
        return {node: None if not end else max(0.0, (end - now_ms) / 1e3) for node, end in found.items()}


def _text(error: BaseException) -> str:
    """Return the last line of an error of Ray, which may contain a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__
