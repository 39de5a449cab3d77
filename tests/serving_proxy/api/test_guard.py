# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.hosts.request_log_files import prediction_log, write_log
from helpers.proxies.host_statistics import following, shadow_version, stats, version_stats, write_host_file
from helpers.proxies.proxy_runs import Proxy, wait_for
from serving_proxy import Client
from serving_proxy.errors import InvalidError, NotFoundError

Make = Callable[..., Path]


def test_limits_are_changed_one_at_a_time(client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    assert client.guard(name)["settings"]["error_percent"] == 1.0
    client.guard(name, error_percent=2.5)
    settings = client.guard(name, min_requests=500, nan_percent=None)["settings"]
    assert (settings["error_percent"], settings["min_requests"], settings["nan_percent"]) == (2.5, 500, None)
    assert [event["message"] for event in client.events(model=name)][-1].startswith(f"{name}: guard settings changed, ")


@pytest.mark.parametrize(
    "limits",
    [
        {"error_percent": -1},
        {"error_percent": "x"},
        {"action": "delete"},
        {"window_s": 0},
        {"confidence": 1},
        {"what": 1},
    ],
)
def test_wrong_limits_are_refused(client: Client, name: str, model: Make, limits: dict[str, Any]) -> None:
    client.deploy(name, model(1), wait=True)
    with pytest.raises(InvalidError, match=next(iter(limits))):
        client.guard(name, **limits)
    with pytest.raises(NotFoundError):
        client.guard("nothing", error_percent=1)


def test_a_bad_variant_of_a_running_proxy_loses_its_traffic(
    proxy: Proxy, client: Client, name: str, model: Make
) -> None:
    client.deploy(name, model(3), wait=True)
    client.deploy(name, model(4), traffic=10, wait=True)
    client.guard(name, min_requests=50, window_s=10, min_correlation=0.9)
    folder = proxy.state_dir / "hosts" / "host-0"

    def more() -> bool:
        more.count += 100  # type: ignore[attr-defined]
        count = more.count  # type: ignore[attr-defined]
        versions = {3: version_stats(ok=10 * count) | following(count), 4: version_stats(ok=count, UNKNOWN=count)}
        write_host_file(folder, "stats.json", stats(versions, name, time=float(count)))
        write_host_file(folder, "shadow.json", stats({4: shadow_version(count)}, name, time=float(count)))
        time.sleep(0.3)
        return client.versions(name)["versions"][1]["traffic"] == 0.0

    more.count = 0  # type: ignore[attr-defined]
    wait_for(more)
    (event,) = [event for event in client.events(model=name) if event["data"].get("ruling") == "bad"]
    assert event["data"]["action"] == "rollback"
    assert event["data"]["findings"][0]["what"] == "errors"
    shown = client.versions(name)["versions"][1]
    assert shown["role"] == "rolled back"
    assert client.guard(name)["versions"]["3"]["ruling"] in {"ok", "wait"}
    metrics = httpx.get(f"{proxy.url}/metrics", headers=proxy.headers(), timeout=60).text
    assert f'recprocessor_proxy_guard_ruling{{model="{name}",ruling=' in metrics
    assert f'recprocessor_proxy_live_overlay_bytes{{model="{name}",version="3"}} 8.4e+06' in metrics
    # Any point will do: the latest ones were taken when no requests came any more.
    wait_for(lambda: any(rate > 0 for _, rate, *_ in client.history()["models"].get(name, {}).get("3", ())))
    (folder / "stats.json").unlink()
    (folder / "shadow.json").unlink()


def test_stream_sends_points_verdicts_and_cpus(client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    for kind, data in client.stream("watch"):
        assert kind == "watch"
        if name in data["points"]:
            break
    assert data["guards"][name]["settings"]["action"] == "rollback"
    assert [cpu["cpu"] for cpu in data["machine"]["cpus"]] == [cpu["cpu"] for cpu in client.machine()["cpus"]]
    assert any(owner["model"] == name for owner in data["machine"]["owners"])


def test_request_log_is_switched_on_and_off(proxy: Proxy, client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    assert client.request_log(name)["sample"] is None
    assert "request_log" not in proxy.desired()["models"][name]
    client.set_request_log(name, 1.5, max_bytes=8192, max_files=3)
    assert proxy.desired()["models"][name]["request_log"] == {"sample": 150, "max_bytes": 8192, "max_files": 3}
    client.set_request_log(name, None)
    assert "request_log" not in proxy.desired()["models"][name]
    with pytest.raises(InvalidError, match="at most two decimals"):
        client.set_request_log(name, 0.001)


def test_the_newest_requests_warm_up_what_is_deployed(proxy: Proxy, client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    second = model(2)
    with pytest.raises(NotFoundError, match="no request in it"):
        client.deploy(name, second, warmup="last")
    write_log(proxy.state_dir, name, 1000, [prediction_log(name, [1.0])])
    found = client.request_log(name)
    assert [(file["host"], file["began"]) for file in found["files"]] == [("host-0", 0.001)]
    client.deploy(name, second, warmup="last", wait=True)
    file = proxy.desired()["models"][name]["versions"]["2"]["warmup_file"]
    assert file == client.merge_request_log(name)["path"]
    write_log(proxy.state_dir, name, 2000, [prediction_log(name, [2.0])])
    client.deploy(name, second, warmup="last", wait=True)
    assert proxy.desired()["models"][name]["versions"]["2"]["warmup_file"] == file
    assert client.merge_request_log(name)["records"] == 2
    assert client.delete_request_log(name)["files"] == []
    assert Path(file).exists()
