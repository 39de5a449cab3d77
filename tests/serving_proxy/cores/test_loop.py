# SPDX-License-Identifier: Apache-2.0
"""Cores divided among versions of a scripted host with eight CPUs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from cost_model.machine import Machine
from cost_model.workload import load_workload
from helpers.proxies.host_statistics import stats, version_stats, write_host_file
from helpers.proxies.lifecycle_records import deployed, settled
from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from helpers.system.background import Background
from serving_proxy.control.observer import Observer
from serving_proxy.cores import loop as cores_module
from serving_proxy.cores.loop import Cores
from serving_proxy.cores.machine import owners
from serving_proxy.cores.profiles import Profiles
from serving_proxy.cores.views import cores_view
from serving_proxy.counters.history import History
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.guard.loop import Guard
from serving_proxy.records.hosts import HostSeen, VersionSeen
from serving_proxy.records.models import Settings
from serving_proxy.store import Database, Repository
from serving_proxy.system.cpus import read_cpus

CPUS = frozenset(range(8))
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores_module, "machine_of", lambda cpus: Machine.even(len(cpus)))


class Place:
    """Cores with a simulated host; a tick is a second."""

    def __init__(self, folder: Path, mode: Any = "control", cpus: frozenset[int] = CPUS) -> None:
        self.repository = Repository(Database(folder / "proxy.sqlite3"))
        self.options = ControlOptions(folder, cores=mode, cpus=cpus)
        self.run_us: dict[int, float] = {}
        self.down: set[str] = set()
        self.now = 1000.0
        self.counted: dict[int, int] = {}
        self.begin()

    def begin(self) -> None:
        """Start a control plane, as after a restart."""
        self.control = Control(self.options, self.repository)
        totals = Totals()
        self.cores = Cores(self.control, totals, Profiles(self.control))
        self.observer = Observer(self.control, totals, Guard(self.control, totals), History(totals), self.cores)

    def tick(self, seconds: int = 1, cpus: tuple[str, ...] = ("0-7",), **rates: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for key, rate in rates.items():
                self.counted[int(key[1:])] = self.counted.get(int(key[1:]), 0) + rate
            versions = {n: version_stats(ok=count) for n, count in self.counted.items()}
            for number, mean in self.run_us.items():
                versions[number]["run_us"]["mean"] = mean
            shown = stats(versions, time=self.now)
            self.control.hosts = tuple(
                HostSeen(
                    f"host-{n}", f"host-{n}" not in self.down, cpus=cpu, state="ready", stats=shown, counted_at=self.now
                )
                for n, cpu in enumerate(cpus)
            )
            self.observer.step(self.now)
            self.cores.step(self.now)

    def desired(self) -> dict[str, Any]:
        """Return the settings of hosts in `desired.json`."""
        self.control._reconcile()
        return json.loads(self.control.desired.path.read_bytes()).get("hosts", {})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    model = deployed(deployed(deployed(None, 3), 4, traffic=1000), 5, traffic=1000)
    made.control.store([settled(model)])
    return made


def test_cpus_are_in_the_desired_state_and_every_move_is_an_event(place: Place) -> None:
    place.tick(20, v3=5000, v4=50, v5=50)
    given = place.desired()["host-0"]["cpusets"]
    assert len(read_cpus(given["ranking/3"])) >= 5
    assert given["ranking/4"] == given["ranking/5"]
    assert not read_cpus(given["ranking/3"]) & read_cpus(given["ranking/4"])
    place.tick(30, v3=500, v4=2000, v5=2000)
    events = [event for event in place.repository.events() if event.kind == "cores"]
    assert events[0].model == "ranking"
    assert all(event.data["reason"] for event in events)
    needed, *_ = [event for event in events if event.data["pool"] == "pool" and "needs" in event.data["reason"]]
    assert needed.data["versions"] == ["ranking/4", "ranking/5"]
    assert read_cpus(needed.data["after"]) > read_cpus(needed.data["before"])
    assert len(read_cpus(place.desired()["host-0"]["cpusets"]["ranking/4"])) >= 4


def test_desired_cpus_grow_before_others_shrink(place: Place) -> None:
    place.tick(8, v3=500, v4=500, v5=500)
    before = place.desired()["host-0"]["cpusets"]
    for _ in range(20):
        place.tick(v3=6000, v4=50, v5=50)
        now = place.desired()["host-0"]["cpusets"]
        if now != before:
            break
    assert read_cpus(now["ranking/3"]) > read_cpus(before["ranking/3"])
    assert now["ranking/4"] == before["ranking/4"]
    place.tick(v3=6000, v4=50, v5=50)
    assert read_cpus(place.desired()["host-0"]["cpusets"]["ranking/4"]) < read_cpus(before["ranking/4"])


def test_a_proxy_that_was_killed_leaves_its_plan_in_force(place: Place) -> None:
    place.tick(20, v3=5000, v4=50, v5=50)
    given = place.desired()
    place.begin()
    assert place.desired() == given
    place.tick(3, v3=5000, v4=50, v5=50)
    assert len(read_cpus(place.desired()["host-0"]["cpusets"]["ranking/3"])) >= 5


def test_a_layout_for_other_cpus_is_not_restored(place: Place) -> None:
    place.tick(10, v3=5000, v4=50, v5=50)
    place.options = ControlOptions(place.options.state_dir, cores="control", cpus=frozenset({0, 1}))
    place.begin()
    assert place.desired() == {}


def test_a_fault_leaves_the_last_plan_in_force(place: Place) -> None:
    place.tick(10, v3=5000, v4=50, v5=50)
    given = place.desired()
    with place.control.recording_faults("cores"):
        place.tick(1, cpus=("0-7", "0-3"), v3=5000)
    assert place.desired()["host-0"] == given["host-0"]
    assert "expected the same on each" in place.repository.events()[-1].message
    with place.control.recording_faults("cores"):
        place.tick(1, cpus=(), v3=5000)
    assert place.desired()["host-0"] == given["host-0"]


def test_the_plan_is_applied_even_if_counters_are_invalid(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("counters")

    place.tick(1, v3=500, v4=50, v5=50)
    monkeypatch.setattr(cores_module.Allocator, "observe", fails)
    for _ in range(10):
        with place.control.recording_faults("cores"):
            place.tick(v3=500, v4=50, v5=50)
    assert place.desired()["host-0"]["cpusets"].keys() == {"ranking/3", "ranking/4", "ranking/5"}


def test_cpus_of_an_operator_are_never_moved(place: Place) -> None:
    model = place.control.model("ranking")
    chosen = model.versions[4].model_copy(update={"settings": Settings(cpuset="6-7")})
    place.control.store([model.with_version(chosen)])
    place.tick(20, v3=5000, v4=3000, v5=50)
    given = place.desired()["host-0"]["cpusets"]
    assert "ranking/4" not in given
    assert read_cpus(given["ranking/3"]) | read_cpus(given["ranking/5"]) == set(range(6))


def test_every_host_gets_the_same_division(place: Place) -> None:
    place.tick(10, cpus=("0-7", "0-7"), v3=500, v4=50, v5=50)
    hosts = place.desired()
    assert hosts["host-0"]["cpusets"]
    assert hosts["host-0"] == hosts["host-1"]


def test_a_restarted_host_loads_with_the_cpus_of_the_others(place: Place) -> None:
    place.tick(10, cpus=("0-7", "0-7"), v3=500, v4=50, v5=50)
    place.down = {"host-1"}
    place.tick(30, cpus=("0-7", "0-7"), v3=6000, v4=50, v5=50)
    hosts = place.desired()
    assert len(read_cpus(hosts["host-0"]["cpusets"]["ranking/3"])) >= 6
    assert hosts["host-1"] == hosts["host-0"]
    place.begin()
    assert place.desired() == hosts


def test_an_overloaded_variant_is_limited_by_every_host_and_each_change_is_an_event(place: Place) -> None:
    place.tick(10, v3=1000, v4=50, v5=50)
    place.tick(15, cpus=("0-7", "0-7"), v3=5000, v4=9000, v5=50)
    versions = place.control.desired.path
    place.desired()

    def limits() -> dict[str, Any]:
        found = json.loads(versions.read_bytes())["models"]["ranking"]["versions"]
        return {number: version.get("limits", {}).get("max_in_flight") for number, version in found.items()}

    allocator = place.cores.allocator
    assert allocator is not None
    most = allocator.limits["ranking/4"].most
    # Two hosts count each, and each takes half of the requests.
    assert limits() == {"3": None, "4": -(-most // 2), "5": -(-allocator.limits["ranking/5"].most // 2)}
    events = [event for event in place.repository.events(limit=1000) if event.data.get("max_in_flight")]
    assert {event.version for event in events} == {4, 5}
    assert any(event.message.startswith(f"ranking/4: at most {most} requests at a time; ") for event in events)
    before = limits()
    place.begin()
    place.desired()
    assert limits() == before, "a proxy that is started anew leaves them in force"
    place.tick(40, cpus=("0-7", "0-7"), v3=1000, v4=50, v5=50)
    place.desired()
    assert set(limits().values()) == {None}
    assert place.repository.events(newest=True, limit=1000)[-1].kind == "cores"


def test_mode_plan_does_not_restore_limits(place: Place) -> None:
    place.tick(10, v3=1000, v4=50, v5=50)
    place.tick(15, v3=5000, v4=9000, v5=50)
    assert place.control.host_settings.limits
    place.options = replace(place.options, cores="plan")
    place.begin()
    assert place.desired()["host-0"]["cpusets"]
    assert place.control.host_settings.limits == {}
    place.tick(3, v3=5000, v4=9000, v5=50)
    assert place.control.host_settings.limits == {}


def test_the_map_of_the_cores_is_the_plan_of_the_scenario(tmp_path: Path) -> None:
    scenario = load_workload(ROOT / "cost_model" / "scenarios" / "box128.yaml")
    place = Place(tmp_path, "plan", frozenset(range(128)))
    rates = scenario.qps_by_model(24_000)
    model = None
    for number, tenant in enumerate(scenario.models, 1):
        traffic = None if tenant.role == "baseline" else 100
        model = deployed(model, number, traffic=traffic, slo_p99_ms=tenant.slo_p99_ms)
        place.run_us[number] = tenant.service.points(tenant.rows).mean
    assert model is not None
    place.control.store([settled(model)])
    place.tick(
        40, cpus=("0-127",), **{f"v{n}": round(rates[tenant.name]) for n, tenant in enumerate(scenario.models, 1)}
    )
    allocator = place.cores.allocator
    assert allocator is not None
    assert allocator.plan is not None
    cores = allocator.plan.machine.cores
    planned = {
        name: {cpu for core in allocation.cores for cpu in cores[core].cpus}
        for allocation in allocator.plan.allocations
        for name in allocation.models
    }
    assert len(planned) == len(scenario.models)
    assert sum(len(allocation.cores) for allocation in allocator.plan.allocations) == 128
    shown = {name: set(pool.cpus) for pool in cores_view(place.cores).pools for name in pool.versions}
    assert shown == planned
    given = place.desired()["host-0"]["cpusets"]
    assert {name: read_cpus(cpus) for name, cpus in given.items()} == planned
    # What the page's map is drawn from, once the host follows.
    seen = {n: VersionSeen("ready", details={"cpuset": given[f"ranking/{n}"]}) for n in model.versions}
    (host,) = place.control.hosts
    map_of = owners([replace(host, models={"ranking": seen})], place.control.models, {"host-0": given})
    assert {f"ranking/{owner.version}": set(owner.cpus) for owner in map_of} == planned
    assert all(owner.wanted is None and owner.own for owner in map_of)


def test_mode_off_divides_no_cores(tmp_path: Path) -> None:
    place = Place(tmp_path, "off")
    place.control.store([settled(deployed(deployed(None, 3), 4, traffic=1000))])
    place.tick(10, v3=500, v4=50)
    assert place.desired() == {}


def test_an_undeployed_model_returns_its_cores(place: Place) -> None:
    place.tick(10, v3=500, v4=50, v5=50)
    assert place.desired()
    place.control.forget("ranking")
    place.tick()
    assert place.desired() == {}


@contextmanager
def _asked(folder: Path, rates: dict[int, int]) -> Iterator[None]:
    """Let a host count requests at steady rates."""

    def write(ended: threading.Event) -> None:
        began = time.monotonic()
        while not ended.wait(0.2):
            passed = time.monotonic() - began
            versions = {number: version_stats(ok=int(rate * passed)) for number, rate in rates.items()}
            write_host_file(folder, "stats.json", stats(versions, time=time.time()))

    with Background(write):
        yield


def test_a_hot_baseline_gets_cores_and_variants_are_pooled(tmp_path: Path) -> None:
    proxy = ProxyThread(tmp_path, "--cores", "control")
    host = proxy.state_dir / "hosts" / "host-0"
    host.mkdir(parents=True)
    (host / "cpus").write_text("0-7", encoding="utf-8")

    def owners() -> dict[int, set[int]]:
        return {owner["version"]: set(owner["cpus"]) for owner in client.machine()["owners"] if owner["own"]}

    with proxy, proxy.client() as client:
        for number in (3, 4, 5):
            path = write_model(tmp_path / "models" / str(number))
            client.deploy("ranking", str(path), traffic=None if number == 3 else 10, wait=True)
        with _asked(host, {3: 6000, 4: 60, 5: 60}):
            wait_for(lambda: len(owners().get(3, ())) >= 6, 60, "a baseline with six cores")
            wait_for(lambda: not owners()[3] & owners()[4], 60, "cores that are not shared")
        assert owners()[4] == owners()[5]
        view = client.machine()["cores"]
        assert view["mode"] == "control"
        assert {tuple(pool["versions"]) for pool in view["pools"]} == {("ranking/3",), ("ranking/4", "ranking/5")}
        lines = client.explain("ranking")["versions"]
        assert any("Cores (control): CPUs" in line for line in lines["3"])
        assert any("shared with ranking/5" in line for line in lines["4"])
        metrics = httpx.get(f"{proxy.url}/metrics", headers=proxy.headers(), timeout=60).text
        assert 'recprocessor_proxy_cores{model="ranking",version="3"}' in metrics
        assert proxy.desired()["models"]["ranking"]["versions"]["3"]["config"]["worker_threads"] >= 1
        client.deploy("ranking", str(tmp_path / "models" / "5"), cpuset="0")
        wait_for(lambda: "ranking/5" not in proxy.desired()["hosts"]["host-0"]["cpusets"])
        client.deploy("ranking", str(tmp_path / "models" / "5"), cpuset="auto")
        wait_for(lambda: "ranking/5" in proxy.desired()["hosts"]["host-0"]["cpusets"])
