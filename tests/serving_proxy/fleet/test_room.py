# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.fleet.room import lacking_memory
from serving_proxy.records.hosts import HostSeen, VersionSeen
from serving_proxy.records.placement import ModelPlacement, Placement, Replica

MODEL = settled(deployed(None, 3))
OTHER = MODEL.change(name="other")
MODELS = {MODEL.name: MODEL, "other": OTHER}


def host(machine: str, **gigabytes: int) -> HostSeen:
    names = {"ranking": MODEL.name, "other": "other"}
    models = {
        names[name]: {3: VersionSeen("ready", details={"memory_bytes": size * 10**9})}
        for name, size in gigabytes.items()
    }
    return HostSeen(f"{machine}/h", True, state="ready", machine=machine, models=models)


def test_machine_without_room_for_a_model_is_named() -> None:
    hosts = [host("a", ranking=5), host("b", other=6)]
    placed = Placement(models={MODEL.name: ModelPlacement(replicas=(Replica(machine="a"), Replica(machine="b")))})
    memory = {"a": 8 * 10**9, "b": 10 * 10**9}
    (said,) = lacking_memory(placed, MODELS, hosts, memory)
    assert said.startswith(f"b: about 5.0 GB for {MODEL.name}/3, expected at most the 3.0 GB that are free")
    assert lacking_memory(placed, MODELS, hosts, memory | {"b": 13 * 10**9}) == []
    # Nothing is known about these machines.
    assert lacking_memory(placed, MODELS, hosts, {"a": 8 * 10**9}) == []
    assert lacking_memory(placed, MODELS, [], memory) == []
