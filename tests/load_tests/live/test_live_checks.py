# SPDX-License-Identifier: Apache-2.0
"""The checks of live models find what is wrong, and pass what is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.store.lineage import read_lineage
from graph_tools.store.timeline_writer import TimelineWriter
from load_tests import bench_live
from load_tests._programs import find_program
from load_tests.live import footprint, latency, lookups
from load_tests.live.client import LiveClients
from load_tests.live.damage import KINDS
from load_tests.live.expected import Checks, Expected
from load_tests.live.host import LiveAnswer
from load_tests.live.memory import Population
from load_tests.live.mixed import CONFIG, SHAPE, count_overlapped, judge
from load_tests.live.model import SCALE, delta_of, ensure_artifact, variables_at
from load_tests.live.setup import Setup

KEYS = np.arange(SHAPE.keys, dtype=np.int64)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def setup(library: Path, cache: Path) -> Setup:
    return Setup(find_program("bench_live"), library, cache / "live", quick=True)


@pytest.mark.parametrize(
    "fault",
    [{"value": 7}, {"variables": {"bias": variables_at(SHAPE, 2)["bias"]}}, {"keys": KEYS[1:]}],
    ids=["rows of another epoch", "a bias of another epoch", "a row that did not change"],
)
def test_answers_with_a_part_of_another_epoch_are_counted(setup: Setup, tmp_path: Path, fault: dict[str, Any]) -> None:
    artifact = ensure_artifact(SHAPE, setup.cache)
    position = read_lineage(artifact)
    assert position is not None
    writer = TimelineWriter(tmp_path, position)
    with LiveClients(setup, artifact, SHAPE, CONFIG | {"follow": str(tmp_path)}, threads=2, batch=64) as clients:
        writer.publish(delta_of(SHAPE, 1, **({"keys": KEYS} | fault)))
        clients.wait_for(1)
        assert clients.measure()["requests"] > 0
    report = clients.report
    assert 0 < report["wrong"] <= report["answers"]
    assert "epoch 1" in report["first_wrong"][0]
    assert not judge(report | {"overlapped": 1, "least": {"swaps": 1, "answers": 1}})[0].ok


def test_the_cases_pass_and_check_every_answer(setup: Setup, cache: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    options = ["--library", str(setup.library), "--cache", str(cache), "--output", str(output)]
    names = ("mixed", "damage", "rollbacks")
    assert bench_live.main(["--quick", "--only", *names, "--seed", "3", *options]) == 0
    mixed, damage, rollbacks = (json.loads(output.read_text())["cases"][name] for name in names)
    assert mixed["overlapped"] >= 40
    assert min(mixed["answers"], mixed["batched"]) > 1000
    assert len(mixed["sessions"]) == 2
    assert damage["dead_ends"] == []
    assert damage["kinds"]["killed"] == 1
    assert sum(damage["kinds"].get(kind, 0) for kind in (*KINDS, "good")) == damage["events"]
    assert damage["fully_applied"] == [damage["epochs"]]
    assert rollbacks["dead_ends"] == []
    assert (rollbacks["rollbacks"], rollbacks["kills"]) == (2, 1)
    assert rollbacks["fully_applied"][0] == 0


def test_the_population_keeps_its_size_and_deletes_only_live_keys() -> None:
    population, live = Population(2000), set(range(2000))
    for _ in range(50):
        changed, deleted = population.turn()
        assert set(deleted.tolist()) <= live
        live = live - set(deleted.tolist()) | set(changed.tolist())
        assert live == set(population.live.tolist())
        assert len(live) == 2000
        assert np.all(np.diff(changed) > 0), "the format asks for ascending keys"
        assert not set(deleted.tolist()) & set(changed.tolist())


def test_the_ratio_of_lookups_is_the_median_of_the_runs() -> None:
    def run(changed: float, same: float) -> dict[str, Any]:
        return {"case": "live", "ways": [{"way": "changed", "p50_us": changed}, {"way": "same", "p50_us": same}]}

    case = lookups.summarize([run(12, 10), run(13, 10), run(22, 20)])
    assert case["ratio"] == 1.2
    assert case["interval"][0] <= 1.2 <= case["interval"][1]
    (target,) = lookups.judge({"rows, in_place": case, "rows, new": case})
    assert not target.ok


def test_latencies_are_judged_beyond_the_interval_of_the_same_side() -> None:
    assert latency.judge({"ratio": 1.2, "same_interval": [0.9, 1.2]})[0].ok
    assert not latency.judge({"ratio": 1.2, "same_interval": [0.9, 1.0]})[0].ok
    assert not latency.judge({"ratio": 1.06, "same_interval": [0.5, 0.9]})[0].ok


def test_the_footprint_counts_pages_once_and_libraries_in_full() -> None:
    mappings = """\
1000-2000 r--p 00000000 fe:00 7   /data/rows.emb
Rss:   100 kB
Pss:    50 kB
Anonymous:  0 kB
2000-3000 r-xp 00000000 fe:00 8   /lib/libtensorflow.so.2
Rss:    30 kB
Pss:     1 kB
Anonymous:  10 kB
3000-4000 rw-p 00000000 00:00 0
Rss:     5 kB
Pss:     5 kB
Anonymous:  5 kB
"""
    found = footprint.sum_mappings(mappings.splitlines())
    assert {name: size // 1024 for name, size in found.items()} == {
        "total": 85, "anonymous": 15, "libraries": 20, "files": 50,
    }  # fmt: skip


def test_wrong_answers_fail_the_run(
    setup: Setup, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(bench_live.CASES, "mixed", (lambda _: {"wrong": 1}, lambda _: []))
    options = ["--library", str(setup.library), "--cache", str(cache), "--output", str(tmp_path / "results.json")]
    assert bench_live.main(["--quick", "--only", "mixed", *options]) == 1
    assert "Wrong answers: mixed" in capsys.readouterr().out


def test_a_swap_counts_only_if_requests_cover_the_time_in_which_it_can_be() -> None:
    long = [0, 1, 100, 200, 201, 300]  # a request of epoch 0, then one of epoch 1
    assert count_overlapped([long], 1, 1) == 0, "the swap may have been between the two"
    assert count_overlapped([long, [0, 1, 150, 250, 260, 400]], 1, 1) == 1
    assert count_overlapped([long, [0, 1, 90, 95, 205, 210]], 1, 1) == 0, "nobody asked from 200 to 201"
    assert count_overlapped([[0, 2, 100, 200, 190, 300]], 1, 2) == 2, "two swaps between two requests"
    assert count_overlapped([[0, 2, 100, 200, 190, 300]], 2, 2) == 1
    assert count_overlapped([[0, 1, 0, 0, 10, 20]], 1, 1) == 0, "the client had asked nothing before"


def test_answers_are_compared_with_the_epoch_that_they_name() -> None:
    expected = Expected(SHAPE)
    expected.add(np.array([3, 5]))
    expected.add(np.array([5, 9]))
    keys = np.array([[3, 5], [5, 9], [0, 1]])
    rows, y = expected.outputs(2, keys)
    assert rows.tolist() == [[1] * 4 + [2] * 4, [2] * 8, [0] * 8]
    assert y[1] == 2 * SCALE, "both rows are of epoch 2"
    right = LiveAnswer(2, keys, rows, y)
    checks = Checks(expected)
    checks.add(right, least=2)
    assert (checks.answers, checks.wrong, checks.served) == (1, [], 2)
    old_rows, old_y = expected.outputs(1, keys)
    for wrong in (
        replace(right, epoch=1),
        replace(right, epoch=3),
        replace(right, rows=old_rows),
        replace(right, y=old_y),
    ):
        checks.add(wrong, least=0)
    assert (checks.answers, len(checks.wrong)) == (1, 4)
    checks.add(LiveAnswer(1, keys, old_rows, old_y), least=2)
    assert checks.wrong[4] == "epoch 1 after epoch 2"
