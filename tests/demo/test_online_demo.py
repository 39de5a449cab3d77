# SPDX-License-Identifier: Apache-2.0
"""Run the demo of online learning as `make demo-online` does, with a small part of the stream."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from demo.online.asking import Sent
from demo.online.learning import served_after
from graph_tools.store.delta import Delta
from graph_tools.store.timeline import Position
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.system.programs import start_module


@pytest.mark.slow
def test_demo_serves_what_it_learns(tmp_path: Path) -> None:
    # Models are optimized in idle time, which is rare while tests run; the demo optimizes this one itself.
    files = ("--json", tmp_path / "demo-online.json", "--picture", tmp_path / "demo-online.png")
    demo = start_module("demo.online", *files, "--share", "0.06", "--seconds", "4", "--no-optimize")
    out, err = demo.communicate(timeout=500)
    assert demo.returncode == 0, out + err
    assert err == ""
    found = json.loads((tmp_path / "demo-online.json").read_text())
    stream = found["stream"]
    assert (stream["lost"], found["faults"]) == (0, [])
    assert stream["ratings"] == 5700
    assert stream["requests"] > 20
    assert stream["epochs"] >= 3
    assert 0 < stream["served_p50_s"] <= stream["served_p99_s"] < 60
    assert stream["rows"] > 1000
    assert 0.3 < stream["live_auc"] < 0.9
    plain, lasso = found["lasso"]
    assert (plain["zero_rows"], plain["rows"]) == (0, lasso["rows"])
    assert lasso["zero_rows"] > 0
    assert lasso["served_mb"] < plain["served_mb"]
    assert (tmp_path / "demo-online.png").stat().st_size > 10_000
    assert max(len(line) for line in out.splitlines()) <= 80
    for verb in ("serve --state-dir", "deploy ranker"):
        assert f"$ serving-proxy {verb}" in out


def test_time_until_samples_are_served(tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path, Position.start(bytes(16)))
    for event_time in (10.0, 11.0, 12.0):
        writer.publish(Delta(), event_time=round(event_time * 1e6))
    sent = [
        Sent("a", 10.5, 0.1, 0),
        Sent("b", 11.25, 0.1, 1),
        Sent("a", 11.5, 0.1, -1, "lost"),
        Sent("b", 12.5, 0.1, 2),
    ]
    came = np.array([9.5, 10.0, 10.5, 11.5, 12.5])
    np.testing.assert_allclose(served_after(came, tmp_path, sent), [1.75, 1.25, 2.0, np.inf, np.inf])
