# SPDX-License-Identifier: Apache-2.0
"""Tables on narrow terminals."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console, RenderableType

from serving_proxy.cli.rendering import render_model, render_status, render_versions
from serving_proxy.cli.rendering_placement import render_endpoints, render_placement

LONG_PATH = "/models/production/" + "/".join(["ranking"] * 12) + "/6"
HOST = {"state": "ready", "precision": "bf16", "in_flight": 2, "cpuset": "0-1"}


def version(number: int, **values: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"version": number, "state": "ready", "role": "", "traffic": 0, "shadow": 0, "labels": []}
    made |= {"since": time.time(), "bytes": 12_345_678, "sha256": "0123456789abcdef" * 4, "source": LONG_PATH}
    return made | {"optimize": None, "reason": "", "hosts": {"host-0": HOST}} | values


MODEL = {
    "name": "ranking",
    "paused": False,
    "ramps": [{"version": 4, "to": 40}],
    "versions": [
        version(3, role="baseline", traffic=90),
        version(4, role="arm", traffic=10, labels=["canary"], since=1e9),
        version(5, role="shadow", shadow=20, state="warming", hosts={}),
        version(6, state="failed", hosts={}, reason=f"host-0: {LONG_PATH}: the checkpoint is damaged"),
    ],
}
STATUS = {"fault": None, "jobs": [], "hosts": [], "models": [MODEL]}


def lines(shown: RenderableType, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(shown, crop=False)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("shown", [render_model(MODEL), render_status(STATUS)])
def test_each_version_takes_one_line_of_a_table(shown: RenderableType, width: int) -> None:
    found = lines(shown, width)
    assert max(map(len, found)) <= width
    (fourth,) = [line for line in found if "canary" in line]
    assert all(word in fourth for word in ("4", "ready", "arm", "10 %", "bf16"))


def test_replicas_are_those_of_the_machines_that_are_to_have_a_version() -> None:
    hosts = [{"name": f"{name}/host-0", "alive": True, "state": "ready", "origin": "agent", "pid": 0, "generation": 1,
              "cpus": "", "restarts": 0, "endpoints": {}, "note": ""} for name in ("a", "b", "c")]  # fmt: skip
    placed = version(3, machines=["a", "b", "away"], hosts={"a/host-0": HOST, "b/host-0": HOST | {"state": "warming"}})
    everywhere = version(4, machines=None, hosts={"a/host-0": HOST})
    found = lines(render_status(STATUS | {"hosts": hosts, "models": [MODEL | {"versions": [placed, everywhere]}]}), 120)
    assert ["1 of 3" in line for line in found if line.startswith("ranking/") and "ready" in line] == [True, True]
    placed |= {"machines": ["a", "away"]}
    found = lines(render_status(STATUS | {"hosts": hosts, "models": [MODEL | {"versions": [placed]}]}), 120)
    assert any("1 of 2" in line for line in found)


def test_machines_of_models_are_a_table() -> None:
    model = {"name": "ranking", "machines": ["a", "b"], "leaving": ["c"], "waits_for": "a: no host", "versions": {}}
    found = lines(
        render_placement({"applied": 0.0, "models": [model], "remarks": ["machines without an entry: d"]}), 80
    )
    assert any(line.split() == ["ranking", "a,", "b", "c"] for line in found)
    assert any("waits for a: no host" in line for line in found)
    assert any("machines without an entry: d" in line for line in found)


def test_endpoints_of_machines_that_are_away_are_marked() -> None:
    there = {"host": "a/h", "addresses": {"grpc": "10.0.0.1:8500"}, "versions": [7]}
    away = {"host": "b/h", "addresses": {"grpc": "10.0.0.2:8500"}, "versions": [7], "away_for": 12.4}
    found = lines(render_endpoints({"model": "ranking", "endpoints": [there, away]}), 80)
    assert [line.split() for line in found if "8500" in line] == [
        ["a/h", "10.0.0.1:8500", "7"],
        ["b/h", "10.0.0.2:8500", "7", "away", "for", "12", "s"],
    ]


def test_paths_of_versions_are_never_broken() -> None:
    assert sum(line.endswith(f"0123456789ab  {LONG_PATH}") for line in lines(render_versions(MODEL), 80)) == 4


def test_reasons_and_ramps_stand_below_the_table() -> None:
    found = lines(render_model(MODEL), 80)
    assert [line.split()[0] for line in found if line.startswith("ranking/")] == ["ranking/4", "ranking/6"]
    assert "ranking/4  ramp of the traffic to 40 %" in [line.rstrip() for line in found]


def test_replicas_that_do_not_exist_yet_are_counted() -> None:
    found = {"ready": 0, "wanted": 3, "reason": "--replicas", "replicas": [], "nodes": [], "fault": "no answer of Ray"}
    shown = lines(render_status({**STATUS, "replicas": found}), 80)
    assert shown[0] == "Replicas, 0 ready of 3 (--replicas)"
    assert "engine  no answer of Ray" in shown[1]
