# SPDX-License-Identifier: Apache-2.0
"""Run a scenario briefly against a real proxy and host, and check properties of all scenarios."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.scenarios.__main__ import main
from load_tests.scenarios.catalog import SCENARIOS, Run
from load_tests.scenarios.page import render


def test_names_of_scenarios() -> None:
    assert set(SCENARIOS) == {"steady", "burst", "version_switch", "overload", "noisy_variant", "soak"}
    for scenario in SCENARIOS.values():
        assert scenario.limits


def test_every_burst_is_followed_by_a_calm_phase() -> None:
    scenario = SCENARIOS["burst"]
    phases = scenario.phases(Run(None, scenario.rate, scenario.seconds))  # type: ignore[arg-type]  # nothing plays
    assert [phase.name for phase in phases] == ["calm", "burst"] * 3 + ["calm"]
    assert sum(phase.seconds for phase in phases) == pytest.approx(scenario.seconds)
    assert {phase.rate for phase in phases if phase.name == "burst"} == {3 * scenario.rate}


@pytest.mark.slow
def test_versions_switch_under_locust(library: Path, tmp_path: Path) -> None:
    # Not imported: locust would patch the sockets of this process.
    if find_spec("locust") is None:
        pytest.skip("no locust; `make .venv/.stamp-load-test` installs it")
    arguments = ["version_switch", "--workload", "tiny", "--seconds", "3", "--rate", "80", "--warm-up", "0.3"]
    # A busy machine misses limits of latency, so only the other limits are checked.
    assert main([*arguments, "--no-limits", "--output", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "version_switch.json").read_text())
    assert [result["phase"] for result in results["phases"]] == ["quiet", "switching", "quiet again"]
    assert results["settings"]["generator"] == "locust"
    assert results["quick"]
    assert 150 < sum(phase["sent"] for phase in results["phases"]) < 330
    assert results["figures"]["failed"] == results["figures"]["unanswered"] == 0, results["phases"]
    assert results["figures"]["switches"] >= 4
    assert "locust" in (tmp_path / "version_switch-locust.html").read_text().lower()
    page = (tmp_path / "version_switch.html").read_text()
    assert "version_switch-locust.html" in page
    assert page.count("<tr>") == 2 + len(results["targets"]) + 3


def _results(**phase: object) -> dict[str, Any]:
    """What a scenario of one phase writes, with limits of which the second is missed."""
    targets = [Target("burst: failed requests", 0.0, 0.0, False), Target("burst: p99, ms", 61.5, 50.0, False)]
    entry = {"phase": "<b>", "seconds": 4.0, "asked_requests_per_s": 1.0, "sent": 1, "answered": 0, "failed": {}}
    return {
        "environment": describe_environment(ROOT) | {"cpu": "<cpu>", "commit": None},
        "scenario": "burst", "title": "y", "quick": True, "slo_ms": 50.0,
        "settings": {
            "host": "go", "workload": "tiny", "rate": 40.0, "seconds": 4.0, "seed": 1, "generator": "loadgen",
            "shared": False,
        },
        "phases": [entry | {"windows_us": []} | phase], "targets": [target.to_json() for target in targets],
    }  # fmt: skip


def test_the_page_escapes_what_it_shows() -> None:
    page = render(_results(failed={"<script>": 1}), None)
    assert "<script" not in page
    assert "<cpu>" not in page
    assert "locust" not in page


def test_page_shows_missed_targets_and_draws_each_second() -> None:
    page = render(_results(windows_us=[900.0, 61_500.0, 2000.0, 3000.0]), "burst-locust.html")
    assert "1 of 2 limits missed" in page
    assert page.count('class="FAIL"') == 2  # of the scenario, and of the limit
    assert page.count('class="PASS"') == 1
    assert "shorter than usual" in page
    (points,) = re.findall(r'<polyline points="([^"]+)"', page)
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert heights[1] < heights[3] < heights[2] < heights[0]
    # 61.5 ms is drawn above the line of 50 ms, between the marks of 10 and 100 ms.
    (line,) = re.findall(r'<line [^>]*y1="([0-9.]+)"', page)
    assert heights[1] < float(line) < heights[3]
    assert all(f"{mark} ms</text>" in page for mark in ("0.1", "1", "10", "100"))


@pytest.mark.slow
def test_overload_is_sent_natively(library: Path, tmp_path: Path) -> None:
    if find_spec("locust") is None or not (ROOT / "build" / "host-go" / "loadgen").is_file():
        pytest.skip("no locust or no load generator; `make host-go` makes the latter")
    arguments = ["overload", "--workload", "tiny", "--seconds", "2", "--rate", "40", "--warm-up", "0.3"]
    assert main([*arguments, "--no-limits", "--output", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "overload.json").read_text())
    assert results["settings"]["generator"] == "loadgen"
    assert results["figures"]["host_alive"] == 1
    assert results["figures"]["failed_otherwise"] == 0, results["phases"]
    assert results["phases"][1]["answered"] > results["phases"][0]["answered"]
