# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from cost_model.calibration.check import Line
from load_tests.cost_model.judging import judge
from load_tests.cost_model.picture import draw_predictions
from load_tests.cost_model.predictions import find_targets


def line(run: int, measured: float, predicted: float) -> Line:
    return Line(run, "ranking", 1, 0.5, 99.0, 100.0, measured / 3, measured, predicted / 3, predicted)


def test_errors_count_beyond_the_spread(tmp_path: Path) -> None:
    labels = ["one|0.5", "one|0.8", "one|0.5"]
    queue = [line(0, 10.0, 13.2), line(1, 20.0, 10.0), line(2, 12.0, 13.2)]
    (first, second) = verdicts = judge(labels, queue=queue, simulator=queue, uncalibrated=queue)
    assert first.p99_ms == (10.0, 12.0)
    assert first.spread == pytest.approx(2 / 11)
    assert first.off("queue") == pytest.approx(0.2)
    assert first.beyond("queue") == pytest.approx(0.1)
    assert second.beyond("queue") == pytest.approx(0.5)
    targets = find_targets(verdicts)
    assert [target.value for target in targets] == pytest.approx([0.5, 0.5])
    assert not any(target.ok for target in targets)
    assert first.to_json()["predicted"]["queue"]["p99_beyond"] == pytest.approx(0.1)
    draw_predictions(verdicts, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
