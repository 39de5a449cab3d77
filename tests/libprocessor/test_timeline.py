# SPDX-License-Identifier: Apache-2.0
"""The keys `timeline_*`: which requests leave a file, and what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import DropInModel, captured_log
from helpers.models import model_builders

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def timeline(folder: Path, start: int = 0, interval: int = 1, count: int = 1) -> dict[str, Any]:
    return {
        "timeline_start_step": start,
        "timeline_interval_step": interval,
        "timeline_trace_count": count,
        "timeline_path": str(folder),
    }


def call(model: DropInModel, times: int = 1) -> None:
    for _ in range(times):
        status, data = model.process(encode({"x": X}))
        assert status == 200, data
        np.testing.assert_allclose(decode(data or b"")["y"], model_builders.linear_score(X), rtol=1e-5)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def read(file: Path) -> Any:
    from tensorflow.core.framework import step_stats_pb2

    return step_stats_pb2.StepStats.FromString(file.read_bytes())


def test_files_are_step_statistics(tiny_model: Path, tmp_path: Path) -> None:
    with DropInModel(tiny_model, **timeline(tmp_path / "made" / "for it", count=2)) as model:
        assert model.ask("info")["executor"] == "default"
        call(model, 3)
    folder = tmp_path / "made" / "for it"
    assert names(folder) == ["timeline-0", "timeline-1"]
    for name in names(folder):
        (device,) = read(folder / name).dev_stats
        assert device.device.endswith("CPU:0")
        assert any("MatMul" in node.timeline_label or "MatMul" in node.node_name for node in device.node_stats)
        assert all(node.all_start_micros > 0 for node in device.node_stats)


def test_the_configured_requests_are_traced(tiny_model: Path, tmp_path: Path) -> None:
    with DropInModel(tiny_model, session_num=2, select_session_policy="RR", **timeline(tmp_path, 2, 3, 3)) as model:
        written = []
        for _ in range(12):
            call(model)
            written.append(len(names(tmp_path)))
        # Requests 2, 5 and 8, counted from 0 over all sessions; the warm-up does not count.
        assert written == [0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
        assert names(tmp_path) == ["timeline-0", "timeline-1", "timeline-2"]


def test_traced_requests_have_the_same_response(string_model: Path, tmp_path: Path) -> None:
    inputs = {"item": [b"pear"], "price": np.array([0.5], np.float32)}
    with DropInModel(string_model, **timeline(tmp_path, count=100)) as model:
        for outputs in ((), ("label",), ("score", "id")):
            traced = decode(model.process(encode(inputs, outputs=outputs)).data or b"")
            assert set(traced) == set(outputs or ("label", "score", "id"))
            expected = {"label": [b"pear!"], "score": [10.5], "id": [1]}
            assert all(array.tolist() == expected[name] for name, array in traced.items())
        assert (
            model.process(encode(inputs | {"item": [b"a"] * 3, "price": np.zeros(2, np.float32)})).status == 500
        )  # fails while it is traced
        assert model.process(encode(inputs)).status == 200
    for name in names(tmp_path):
        read(tmp_path / name)


def test_a_folder_that_cannot_be_written_is_logged(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with DropInModel(tiny_model, **timeline(tmp_path / "file" / "folder", count=2)) as model, captured_log() as lines:
        call(model, 3)
    assert len(lines) == 2
    assert f"timeline '{tmp_path / 'file' / 'folder' / 'timeline-0'}': cannot be written" in lines[0].text


def test_the_single_threaded_executor_may_be_chosen_with_a_timeline(tiny_model: Path, tmp_path: Path) -> None:
    with DropInModel(tiny_model, executor="single_threaded", **timeline(tmp_path)) as model:
        assert model.ask("info")["executor"] == "single_threaded"
        call(model, 2)
    assert names(tmp_path) == ["timeline-0"]
    read(tmp_path / "timeline-0")


def test_no_request_is_traced_by_default(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with DropInModel(tiny_model) as model:
        call(model, 3)
    assert names(tmp_path) == []
