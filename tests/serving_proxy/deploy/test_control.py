# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helpers.proxies.lifecycle_records import deployed, host, settled
from serving_proxy.deploy import control as module
from serving_proxy.deploy.changes import promote, roll_back, start_ramp
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.store import Database, Repository


def test_a_ramp_does_not_advance_while_its_version_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        control = Control(ControlOptions(tmp_path), Repository(Database(tmp_path / "db")))
        model = settled(deployed(deployed(deployed(None, 3), 4), 5))
        for number in (4, 5):
            model = start_ramp(model, number, 4000, 400.0, ()).model
        control.store([model])
        now = module.time.monotonic()
        monkeypatch.setattr(module.time, "monotonic", lambda: now)
        for second in range(60):
            now += 1.0
            states = {3: "ready", 4: "loading" if second < 40 else "ready", 5: "ready"}
            monkeypatch.setattr(control.actual, "read", lambda states=states: (host(states),))
            control.step()
            weights = control.models["ranking"].weights
            assert weights.get(4, 0) <= max(0, second - 39) * 10
        assert 150 <= weights[4] <= 200
        assert weights[5] >= 580

    asyncio.run(run())


def test_generation_of_a_baseline_is_that_in_which_it_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(*drained: str) -> Control:
        control = Control(ControlOptions(tmp_path), Repository(Database(tmp_path / "db")))
        monkeypatch.setattr(control.actual, "read", lambda: (host({3: "ready", 4: "ready"}),))
        control.drain(drained)
        return control

    def publish(control: Control, baseline: int) -> int:
        """Let the control plane publish a baseline, and return the generation."""
        for _ in range(10):
            control.step()
            if control.desired.body["models"]["ranking"]["baseline"] == baseline:
                return control.desired.generation
        raise AssertionError(f"{baseline} is not published")

    async def run() -> None:
        control = begin()
        control.store([settled(deployed(deployed(None, 3), 4))])
        assert control.baseline_since("ranking") is None
        first = publish(control, 3)
        assert control.baseline_since("ranking") == first
        control.commit(promote(control.model("ranking"), 4))
        promoted = publish(control, 4)
        assert control.baseline_since("ranking") == promoted > first
        # Another change of what hosts serve, but not of the baseline.
        control.drain(["m/*"])
        control.step()
        assert control.baseline_since("ranking") == promoted < control.desired.generation
        control.commit(roll_back(control.model("ranking")))
        assert publish(control, 3) == control.baseline_since("ranking") == control.desired.generation
        for _ in range(3):
            control.step()
        # Another proxy does not know when it was, and takes the newest generation.
        last = control.desired.generation
        control = begin("m/*")
        control.step()
        assert control.baseline_since("ranking") == control.desired.generation == last

    asyncio.run(run())
