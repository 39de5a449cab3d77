# SPDX-License-Identifier: Apache-2.0
"""Profiles of deployed versions: measured by the real worker next to a scripted host, reused, or given."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cost_model.profiling.fingerprint import fingerprint
from cost_model.profiling.measure import profile_model
from cost_model.profiling.profile import load_profile
from helpers.proxies.proxy_runs import ProxyThread, wait_for
from serving_proxy import Client
from serving_proxy.cores import profiler
from serving_proxy.errors import InvalidError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# Workers have a low priority: while other tests run, they take many times as long.
_PROFILED_S = 600.0

ROWS = (1, 8)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, make_linear_model: Callable[..., Path]) -> dict[int, Path]:
    """The same graph with weights of its own for each number, and 9, which is another one and cannot be loaded."""
    folder = tmp_path_factory.mktemp("models")
    made = {number: make_linear_model(folder / str(number), scale=float(number)) for number in (3, 4, 5, 6, 7)}
    damaged = make_linear_model(folder / "9")
    for file in (damaged / "variables").iterdir():
        file.write_bytes(b"no variables")
    return made | {9: damaged}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    folder = tmp_path_factory.mktemp("proxy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiler, "ROWS", ROWS)
        patch.setattr(profiler, "_SECONDS", 0.05)
        patch.setattr(profiler, "PERIOD_S", 0.1)
        patch.setattr(profiler, "_PAUSE_S", 0.5)
        options = ["--cores", "plan", "--maintenance-cpus", "0", "--model-store", f"file://{folder}/store"]
        with ProxyThread(folder, *options) as running:
            yield running


def figures(client: Client, name: str, version: int) -> str:
    """Return the line of `explain` about the source of a version's figures."""
    lines = client.explain(name)["versions"].get(str(version), [])
    return next((line for line in lines if line.startswith("Its figures:")), "")


def jobs(client: Client, name: str) -> list[str]:
    """Return how jobs that profile a model have ended."""
    return [
        job["state"] for job in client._ask_list("GET", "/v1/jobs") if (job["kind"], job["model"]) == ("profile", name)
    ]


def test_a_version_is_profiled_once_it_is_ready_and_goes_on_where_it_was_left(
    proxy: ProxyThread, client: Client, models: dict[int, Path], name: str
) -> None:
    graph = fingerprint(models[3])
    unfinished = proxy.state_dir / "profiles" / "unfinished"
    unfinished.mkdir(parents=True)
    before = profile_model(models[3], [0], ROWS[:1], [1], seconds=0.02, beside=True)

    def left_behind(path: Path) -> None:
        import hashlib

        before.save(unfinished / f"{graph}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}.json")

    left_behind(models[3].resolve())
    client.deploy(name, models[3], wait=True)
    assert client.versions(name)["versions"][0]["state"] == "ready"
    wait_for(lambda: "measured here" in figures(client, name, 3), _PROFILED_S, "a profile")
    wait_for(lambda: jobs(client, name) == ["succeeded"], _PROFILED_S, "the end of its job")
    (file,) = (proxy.state_dir / "profiles").glob("*.json")
    made = load_profile(file)
    assert set(made.points) == {(1, rows) for rows in ROWS}
    assert made.points[1, 1] == pytest.approx(before.points[1, 1], abs=1e-3)
    assert list(unfinished.iterdir()) == []
    (stored,) = wait_for(
        lambda: list((proxy.folder / "store" / "profiles").glob("*/*.json")), _PROFILED_S, "a stored profile"
    )
    assert stored.read_bytes() == file.read_bytes()
    # Other weights: one check point, which decides.
    client.deploy(name, models[4], traffic=10, wait=True)
    wait_for(
        lambda: len(jobs(client, name)) == 2 and "running" not in jobs(client, name), _PROFILED_S, "a second profile"
    )
    found = figures(client, name, 4)
    assert ("one measured point confirms" in found) == (len(list((proxy.state_dir / "profiles").glob("*.json"))) == 1)
    assert "measured here" in found or "one measured point confirms" in found
    messages = [event["message"] for event in client.events(model=name) if event["kind"] == "profile"]
    assert len(messages) == 2


def test_a_version_that_cannot_be_profiled_serves_and_is_not_retried(
    proxy: ProxyThread, client: Client, models: dict[int, Path], name: str
) -> None:
    client.deploy(name, models[9], wait=True)
    wait_for(lambda: jobs(client, name) == ["failed"], _PROFILED_S, "a job that failed")
    assert client.versions(name)["versions"][0]["state"] == "ready"
    (event,) = [event for event in client.events(model=name) if event["kind"] == "profile"]
    assert "was not profiled, and is planned from its measured requests" in event["message"]
    assert "because it has no profile" in figures(client, name, 9)
    client.deploy(name, models[9], slo_p99_ms=10.0)
    assert jobs(client, name) == ["failed"]


def workers() -> list[int]:
    """Return the processes that measure for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"serving_proxy.workers.profile_worker" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_a_worker_that_is_killed_is_started_again(
    proxy: ProxyThread, client: Client, models: dict[int, Path], name: str
) -> None:
    client.deploy(name, models[6], wait=True)
    (pid,) = wait_for(workers, _PROFILED_S, "a worker")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: sorted(jobs(client, name)) == ["failed", "succeeded"], _PROFILED_S, "a second job that works")
    events = [event["message"] for event in client.events(model=name) if event["kind"] == "profile"]
    assert "could not be profiled, and the proxy tries again" in events[0]
    assert "ended by SIGKILL" in events[0]


def test_profiling_waits_for_free_memory(
    proxy: ProxyThread, client: Client, models: dict[int, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "_available_bytes", lambda: 2**20)
    client.deploy(name, models[7], wait=True)
    wait_for(lambda: jobs(client, name)[:2] == ["failed", "failed"], _PROFILED_S, "two jobs that find no memory")
    monkeypatch.undo()
    wait_for(lambda: jobs(client, name)[0] == "succeeded", _PROFILED_S, "a job that finds it")
    assert len([event for event in client.events(model=name) if event["kind"] == "profile"]) == 2


def test_a_profile_that_is_given_is_planned_with(
    proxy: ProxyThread, client: Client, models: dict[int, Path], name: str, tmp_path: Path
) -> None:
    file = tmp_path / "given.json"
    profile_model(models[5], [0], ROWS, [1], seconds=0.02, beside=True, out=file)
    client.deploy(name, models[5], profile=str(file), wait=True)
    wait_for(lambda: "the profile given.json, given with `--profile`" in figures(client, name, 5))
    assert jobs(client, name) == []
    client.deploy(name, models[5], slo_p99_ms=10.0)
    assert "given" in figures(client, name, 5)
    client.deploy(name, models[5], profile="auto")
    wait_for(lambda: jobs(client, name) == ["succeeded"], _PROFILED_S, "a measurement in its place")
    wait_for(lambda: "given" not in figures(client, name, 5))


def test_another_machine_gets_a_profile_that_was_given(
    proxy: ProxyThread, client: Client, models: dict[int, Path], name: str, tmp_path: Path
) -> None:
    file, store = tmp_path / "given.json", proxy.folder / "store"
    profile_model(models[5], [0], ROWS, [1], seconds=0.02, beside=True, out=file)
    client.deploy(name, models[5], profile=str(file), wait=True)
    model = f"file://{store}/{name}/5"
    pointers = store / "profiles" / "given" / "models"
    wait_for(
        lambda: any(model in path.read_text() for path in pointers.glob("*.json")), _PROFILED_S, "an uploaded profile"
    )
    options = ["--cores", "plan", "--maintenance-cpus", "0", "--model-store", f"file://{store}"]
    with ProxyThread(tmp_path / "other", *options) as other, other.client() as there:
        there.deploy(name, model, wait=True)
        given = other.state_dir / "profiles" / f"{fingerprint(models[5])}-given.json"
        wait_for(given.exists, _PROFILED_S, "the profile of another machine")
        assert given.read_bytes() == file.read_bytes()
    client.deploy(name, models[5], profile="auto")
    wait_for(
        lambda: not any(model in path.read_text() for path in pointers.glob("*.json")), _PROFILED_S, "a removed profile"
    )


def test_a_wrong_profile_is_refused(client: Client, models: dict[int, Path], name: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.json"
    made = profile_model(models[5], [0], (1,), [1], seconds=0.01, beside=True)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidError, match=r"wrong\.json.*expected"):
        client.deploy(name, models[5], profile=str(file))
    text = made.to_json()
    file.write_text(json.dumps(text | {"cpu_model": "Z80"}), encoding="utf-8")
    with pytest.raises(InvalidError, match="a profile from 'Z80' found"):
        client.deploy(name, models[5], profile=str(file))
    file.write_text(json.dumps(text | {"fingerprint": "0" * 16}), encoding="utf-8")
    with pytest.raises(InvalidError, match="of graph 0000000000000000, expected"):
        client.deploy(name, models[5], profile=str(file))
