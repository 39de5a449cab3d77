# SPDX-License-Identifier: Apache-2.0
"""A short run of a scenario against a real proxy and host, and what all scenarios have."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from load_tests._programs import ROOT
from load_tests.scenarios.__main__ import main
from load_tests.scenarios.catalogue import SCENARIOS
from load_tests.scenarios.page import render


def test_names_of_scenarios() -> None:
    assert set(SCENARIOS) == {"steady", "burst", "version_switch", "overload", "noisy_variant", "soak"}
    for scenario in SCENARIOS.values():
        assert scenario.limits


@pytest.mark.slow
def test_versions_switch_under_locust(library: Path, tmp_path: Path) -> None:
    # Not imported: locust would patch the sockets of this process.
    if find_spec("locust") is None:
        pytest.skip("no locust; `make .venv/.stamp-load-test` installs it")
    arguments = ["version_switch", "--workload", "tiny", "--seconds", "6", "--rate", "40", "--warm-up", "0.5"]
    # A machine that does other things misses limits of latency; what may not happen is looked at here.
    assert main([*arguments, "--no-limits", "--output", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "version_switch.json").read_text())
    assert [one["phase"] for one in results["phases"]] == ["quiet", "switching", "quiet again"]
    assert results["settings"]["generator"] == "locust"
    assert results["quick"]
    assert 150 < sum(one["sent"] for one in results["phases"]) < 330
    assert results["figures"]["failed"] == results["figures"]["unanswered"] == 0, results["phases"]
    assert results["figures"]["switches"] >= 4
    assert "locust" in (tmp_path / "version_switch-locust.html").read_text().lower()
    page = (tmp_path / "version_switch.html").read_text()
    assert "version_switch-locust.html" in page
    assert page.count("<tr>") == 2 + len(results["targets"]) + 3


def test_the_page_escapes_what_it_shows() -> None:
    phase = {
        "phase": "<b>", "asked_requests_per_s": 1.0, "sent": 1, "answered": 0, "failed": {"<script>": 1},
        "windows_us": [],
    }  # fmt: skip
    environment = {"cpu": "<cpu>", "cpus": 2, "commit": None, "time": "now"}
    page = render({"environment": environment, "scenario": "x", "title": "y", "phases": [phase], "targets": []}, None)
    assert "<script" not in page
    assert "<cpu>" not in page


@pytest.mark.slow
def test_overload_is_sent_natively(library: Path, tmp_path: Path) -> None:
    if find_spec("locust") is None or not (ROOT / "build" / "host-go" / "loadgen").is_file():
        pytest.skip("no locust or no load generator; `make host-go` makes the latter")
    arguments = ["overload", "--workload", "tiny", "--seconds", "4", "--rate", "40", "--warm-up", "0.3"]
    assert main([*arguments, "--no-limits", "--output", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "overload.json").read_text())
    assert results["settings"]["generator"] == "loadgen"
    assert results["figures"]["host_alive"] == 1
    assert results["figures"]["failed_otherwise"] == 0, results["phases"]
    assert results["phases"][1]["answered"] > results["phases"][0]["answered"]
