# SPDX-License-Identifier: Apache-2.0
"""The verbs over HTTP, with a real server and a real client, and hosts that are processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.proxies.proxy_runs import ProxyThread, wait_for
from serving_proxy import Client
from serving_proxy.errors import (
    CancelledError,
    ExistsError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    ProxyError,
)

Make = Callable[..., Path]


def versions(model: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {version["version"]: version for version in model["versions"]}


def roles(model: dict[str, Any]) -> dict[int, tuple[str, str, float]]:
    return {
        number: (version["state"], version["role"], version["traffic"]) for number, version in versions(model).items()
    }


def test_from_deployment_to_roll_back(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    answer = client.deploy(name, model(3), wait=True)
    assert (answer["version"], answer["job"]["state"], answer["notes"]) == (3, "succeeded", [])
    answer = client.deploy(name, model(4), traffic=10, slo_p99_ms=20, wait=True)
    assert roles(answer["model"]) == {3: ("ready", "baseline", 90.0), 4: ("ready", "variant", 10.0)}
    assert versions(answer["model"])[4]["slo_p99_ms"] == 20
    assert roles(client.traffic(name, {3: 60.5, 4: 39.5})) == {
        3: ("ready", "baseline", 60.5),
        4: ("ready", "variant", 39.5),
    }
    assert roles(client.promote(name, 4)) == {3: ("ready", "last good", 0.0), 4: ("ready", "baseline", 100.0)}
    assert proxy.desired()["models"][name]["versions"]["3"]["traffic"] is False
    assert roles(client.rollback(name)) == {3: ("ready", "baseline", 100.0), 4: ("ready", "rolled back", 0.0)}
    assert proxy.desired()["models"][name]["baseline"] == 3
    client.undeploy(name)
    wait_for(lambda: {version["state"] for version in client.versions(name)["versions"]} == {"stopped"})
    assert name not in proxy.desired()["models"]
    assert name not in {model["name"] for model in client.status()["models"]}


def test_every_verb_may_be_repeated(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    three, four = model(3), model(4)
    client.deploy(name, three, wait=True)

    def back() -> Any:
        return client.rollback(name)

    verbs: list[Callable[[], Any]] = [
        lambda: client.deploy(name, four, traffic=10, labels=["canary"], wait=True),
        lambda: client.traffic(name, {4: 20}),
        # So slow that its share does not change during the test.
        lambda: client.ramp(name, 4, to=30, over_s=1e7),
        lambda: client.pause(name),
        lambda: client.pause(name, paused=False),
        lambda: client.promote(name, 4),
        back,
        lambda: client.undeploy(name, 4),
        lambda: client.undeploy(name),
    ]
    for verb in verbs:
        verb()
        wait_for(lambda: all(version["state"] in {"ready", "stopped"} for version in client.versions(name)["versions"]))
        desired, events = proxy.desired(), client.status()["last_event"]
        if verb is back:
            with pytest.raises(PreconditionError, match="was already rolled back to 3"):
                verb()
        else:
            verb()
        assert proxy.desired() == desired
        assert client.status()["last_event"] == events


def test_a_shadow_gets_mirrored_requests_and_no_traffic(
    client: Client, proxy: ProxyThread, model: Make, name: str
) -> None:
    client.deploy(name, model(3), wait=True)
    answer = client.deploy(name, model(4), shadow=25, wait=True)
    assert versions(answer["model"])[4]["role"] == "shadow"
    assert proxy.desired()["models"][name]["shadow"] == [{"version": 4, "weight": 2500}]


def test_settings_reach_the_hosts(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    (model(3) / "warm").touch()
    settings = {"batching": {"mode": "zero_wait"}, "limits": {"max_queue": 5}, "priority": 3, "cpuset": "0"}
    client.deploy(name, model(3), config={"session_num": 1}, warmup="warm", key_input="user", **settings, wait=True)
    found = proxy.desired()["models"][name]
    assert found["routing"]["key"] == {"input": "user"}
    assert set(found["versions"]["3"].pop("files")) == {"sha256", "seal"}
    assert found["versions"]["3"] == {
        "path": str(model(3)),
        "config": {"session_num": 1},
        "warmup_file": str(model(3) / "warm"),
        "cpuset": "0",
        "batching": {"mode": "zero_wait", "max_rows": 256, "max_wait_us": 1000},
        "limits": {"max_queue": 5},
        "priority": 3,
    }


def test_options_without_effect_are_reported(client: Client, model: Make, name: str) -> None:
    answer = client.deploy(name, model(3), traffic=10, wait=True)
    assert answer["notes"] == [
        f"{name}/3 is the baseline and serves the remaining requests: traffic and shadow have no effect"
    ]


def test_a_version_that_a_host_cannot_load_has_failed(
    client: Client, proxy: ProxyThread, model: Make, name: str
) -> None:
    client.deploy(name, model(3), wait=True)
    (model(4) / "refuse").write_text("variable w: not in the checkpoint", encoding="utf-8")
    with pytest.raises(PreconditionError, match=f"{name}/4: host-0: variable w: not in the checkpoint"):
        client.deploy(name, model(4), traffic=10, wait=True)
    assert roles(client.versions(name))[3] == ("ready", "baseline", 90.0)
    assert any("failed (host-0: variable w" in line for line in client.explain(name)["versions"]["4"])
    with pytest.raises(PreconditionError, match="4: failed"):
        client.promote(name, 4)
    # What was wrong is put right, and deployed again.
    (model(4) / "refuse").unlink()
    client.deploy(name, model(4), wait=True)
    assert roles(client.versions(name))[4][0] == "ready"


@pytest.mark.parametrize("damage", [b"", b"\xff\xffno graph"])
def test_a_corrupt_model_never_reaches_a_host(
    client: Client, proxy: ProxyThread, model: Make, name: str, damage: bytes
) -> None:
    client.deploy(name, model(3), wait=True)
    desired = proxy.desired()
    (model(4) / "saved_model.pb").write_bytes(damage)
    with pytest.raises(PreconditionError, match="expected"):
        client.deploy(name, model(4), traffic=10, wait=True)
    assert roles(client.versions(name))[4][0] == "failed"
    assert proxy.desired()["models"][name]["versions"] == desired["models"][name]["versions"]


def test_another_signature_is_refused_unless_permitted(client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3, {"x": 1}), wait=True)
    other = model(4, {"x": 1, "user": 7})
    with pytest.raises(PreconditionError, match="'user' is there in addition, expected the baseline's signature"):
        client.deploy(name, other, wait=True)
    client.deploy(name, other, other_signature=True, wait=True)
    assert roles(client.versions(name))[4][0] == "ready"


def test_a_deployment_is_cancelled(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    (model(4) / "slow").touch()
    job = client.deploy(name, model(4), traffic=10)["job"]
    wait_for(lambda: client.job(job["id"])["step"].startswith("loading"))
    assert client.cancel(job["id"])["state"] == "cancelled"
    with pytest.raises(CancelledError):
        client.wait(job["id"])
    wait_for(lambda: roles(client.versions(name))[4] == ("stopped", "", 0.0))
    assert list(proxy.desired()["models"][name]["versions"]) == ["3"]
    assert client.cancel(job["id"])["state"] == "cancelled"


def test_a_deployment_during_a_deployment(client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    (model(4) / "slow").touch()
    first = client.deploy(name, model(4))
    assert client.deploy(name, model(4))["job"]["id"] == first["job"]["id"]
    with pytest.raises(ExistsError):
        client.deploy(name, model(3), version=4)
    client.deploy(name, model(5), wait=True)
    client.undeploy(name, 4)
    wait_for(lambda: client.job(first["job"]["id"])["state"] == "cancelled")


def test_a_promotion_waits_for_its_version(client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    (model(4) / "slow").touch()
    client.deploy(name, model(4))
    assert client.promote(name, 4)["baseline"] == 3
    (model(4) / "slow").unlink()
    wait_for(lambda: client.versions(name)["baseline"] == 4)


def test_a_ramp_runs_to_its_end(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    client.deploy(name, model(4), wait=True)
    seen = []

    def reaches(share: float) -> bool:
        seen.append(versions(client.versions(name))[4]["traffic"])
        return bool(seen[-1] >= share)

    # Slow enough that also a busy machine sees it on its way.
    client.ramp(name, 4, to=40, over_s=600)
    for _ in range(2):
        wait_for(lambda share=seen[-1] + 0.01 if seen else 0.01: reaches(share))
    assert seen[-1] < 40
    client.ramp(name, 4, to=40, over_s=0.5)
    wait_for(lambda: reaches(40))
    assert seen == sorted(seen)
    assert client.versions(name)["ramps"] == []
    assert proxy.desired()["models"][name]["routing"]["arms"] == [{"version": 4, "offset": 0, "weight": 4000}]


def test_a_paused_ramp_does_not_advance(client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    client.deploy(name, model(4), wait=True)
    client.ramp(name, 4, to=40, over_s=0.5)
    client.pause(name)
    before = client.versions(name)["ramps"]
    assert versions(client.versions(name))[3]["traffic"] == 100
    wait_for(lambda: client.status()["last_event"])
    assert client.versions(name)["ramps"] == before
    client.pause(name, paused=False)
    wait_for(lambda: client.versions(name)["ramps"] == [])


def test_experiments_of_one_layer_exclude_each_other(
    client: Client, proxy: ProxyThread, model: Make, name: str
) -> None:
    other = f"{name}_b"
    for served in (name, other):
        client.deploy(served, model(3), layer=name, wait=True)
        client.deploy(served, model(4), wait=True)
    client.traffic(name, {4: 70})
    with pytest.raises(ProxyError, match=r"layer: 30 % of the buckets are free, expected 40 %"):
        client.traffic(other, {4: 40})
    client.traffic(other, {4: 30})
    expected = [[{"version": 4, "offset": 0, "weight": 7000}], [{"version": 4, "offset": 7000, "weight": 3000}]]
    wait_for(lambda: [proxy.desired()["models"][served]["routing"]["arms"] for served in (name, other)] == expected)


def test_labels_select_versions(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    client.deploy(name, model(3), labels=["stable"], wait=True)
    client.deploy(name, model(4), labels=["canary"], wait=True)
    wait_for(lambda: proxy.desired()["models"][name].get("labels") == {"canary": 4, "stable": 3})
    assert roles(client.traffic(name, {"canary": 5}))[4][2] == 5


def test_the_json_of_a_deeprec_processor_is_deployed_as_it_is(
    client: Client, proxy: ProxyThread, model: Make, name: str, tmp_path: Path
) -> None:
    config = tmp_path / "processor.json"
    config.write_text(f'{{"savedmodel_dir": "{model(7)}", "session_num": 2, "cpusets": "0"}}', encoding="utf-8")
    assert client.deploy(name, config, wait=True)["version"] == 7
    found = proxy.desired()["models"][name]["versions"]["7"]
    assert set(found.pop("files")) == {"sha256", "seal"}
    assert found == {"path": str(model(7)), "config": {"session_num": 2}, "cpuset": "0"}


@pytest.mark.parametrize(
    ("verb", "error", "said"),
    [
        (
            lambda client, name: client.promote("unknown", 4),
            NotFoundError,
            "model 'unknown': not deployed, expected one of",
        ),
        (lambda client, name: client.promote(name, 9), NotFoundError, "9: not deployed, expected one of 3"),
        (
            lambda client, name: client.traffic(name, {"x": 4}),
            NotFoundError,
            "'x': unknown, expected a version or a label",
        ),
        (lambda client, name: client.traffic(name, {3: 90}), InvalidError, "90 % in all, expected 100 %"),
        (lambda client, name: client.traffic(name, {3: 0.001}), InvalidError, "at most two decimals"),
        (
            lambda client, name: client.traffic(name, {3: 101}),
            InvalidError,
            r"weights\.3: 101(\.0)? found, expected a number of at most 100$",
        ),
        (lambda client, name: client.ramp(name, 3, to=5, over_s=-1), InvalidError, "over_s"),
        (lambda client, name: client.rollback(name), PreconditionError, "3 is the first baseline"),
        (lambda client, name: client.undeploy(name, 9), NotFoundError, "9: not deployed"),
        (lambda client, name: client.deploy(name, "/gone/5"), NotFoundError, "model /gone/5: not there"),
        (lambda client, name: client.deploy(name, "relative"), InvalidError, "expected an absolute path"),
        (
            lambda client, name: client.deploy(name, "/etc/hostname"),
            InvalidError,
            "not a folder, expected a SavedModel",
        ),
        (
            lambda client, name: client.deploy(name, "/etc", version=0),
            InvalidError,
            "version: 0 found, expected a number of at least 1$",
        ),
        (lambda client, name: client.deploy(name, "/etc", cpuset="0-9999"), InvalidError, "cpuset: CPUs"),
        (lambda client, name: client.deploy(name, "/etc", color="red"), InvalidError, "color: unknown member found"),
        (
            lambda client, name: client.deploy(name, "/etc", warmup="/gone"),
            NotFoundError,
            "file /gone: not there",
        ),
        (lambda client, name: client.job(10**9), NotFoundError, "job 1000000000: unknown"),
        (lambda client, name: client.explain("unknown"), NotFoundError, "model 'unknown'"),
    ],
)
def test_invalid_requests_are_refused_with_status_and_message(
    client: Client,
    model: Make,
    name: str,
    verb: Callable[[Client, str], object],
    error: type[ProxyError],
    said: str,
) -> None:
    client.deploy(name, model(3), wait=True)
    before = client.status()["last_event"]
    with pytest.raises(error, match=said):
        verb(client, name)
    assert client.status()["last_event"] == before


def test_status_and_events(client: Client, proxy: ProxyThread, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    status = client.status()
    (host,) = status["hosts"]
    assert (host["name"], host["alive"], host["origin"], host["state"]) == ("host-0", True, "started", "ready")
    shown = next(model for model in status["models"] if model["name"] == name)
    assert shown["versions"][0]["hosts"]["host-0"]["cpuset"] == "0"
    kinds = [event["kind"] for event in client.events(model=name)]
    assert kinds == ["deploy", "baseline", "state", "state", "state", "state"]
    last = client.events(model=name)[-1]["id"]
    client.pause(name)
    assert [event["message"] for event in client.events(after=last, model=name)] == [
        f"{name}: paused, all requests go to the baseline"
    ]
    assert client.jobs()[0]["model"] == name


def test_metrics_and_health(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    text = httpx.get(f"{proxy.url}/metrics", headers=proxy.headers(), trust_env=False, timeout=60).text
    assert f'recprocessor_proxy_version_state{{model="{name}",state="ready",version="3"}} 1.0' in text
    assert 'recprocessor_proxy_host_up{host="host-0",origin="started"} 1.0' in text
    assert httpx.get(f"{proxy.url}/healthz", trust_env=False, timeout=60).json() == {"status": "ok"}
