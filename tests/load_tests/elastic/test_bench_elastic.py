# SPDX-License-Identifier: Apache-2.0
"""The cases of bench_elastic check their answers, and their judges find what misses a target."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from load_tests import _cases, bench_elastic
from load_tests.elastic import dlrm, lookup, memory, pauses, step, threads
from load_tests.elastic.own_rows import OwnRows
from load_tests.elastic.planted_features import FEATURES, PlantedFeatures
from load_tests.elastic.rounds import alternate, cpu_rate, ratio
from load_tests.elastic.setup import BATCH, DIM, Setup, batches_of, keys_of, values_of


def _median(value: float) -> dict[str, float]:
    return {"median": value, "least": value, "greatest": value}


@pytest.mark.parametrize(
    ("judge", "case", "passes"),
    [
        (lookup.judge, {"elastic": _median(8.1e6)}, [True]),
        (lookup.judge, {"elastic": _median(7.9e6)}, [False]),
        (step.judge, {"elastic": _median(2.9e6)}, [False]),
        (threads.judge, {"scaling": {"lookup": 0.91, "step": 0.89}}, [True, False]),
        (memory.judge, {"beyond": 24.5}, [False]),
        (dlrm.judge, {"times": {"dense tf-keras": 2.1, "tower": 0.69}}, [True, False]),
        (pauses.judge, {"longest_ms": 5.1, "longest_push_ms": 1.0, "wrong": 0}, [False, True, True]),
        (pauses.judge, {"longest_ms": 4.9, "longest_push_ms": 5.1, "wrong": 1}, [True, False, False]),
    ],
)
def test_judges_compare_with_the_targets(judge: bench_elastic.Judge, case: dict[str, Any], passes: list[bool]) -> None:
    assert [target.ok for target in judge(case)] == passes


def test_contestants_alternate_and_are_compared_round_by_round() -> None:
    order: list[str] = []
    values = {"one": iter([2.0, 3.0, 9.0]), "other": iter([1.0, 2.0, 3.0])}

    def run(name: str) -> float:
        order.append(name)
        return next(values[name])

    figures = alternate({name: lambda name=name: run(name) for name in values}, 3)
    assert order == ["one", "other", "other", "one", "one", "other"]
    assert figures["one"] == {"median": 3.0, "least": 2.0, "greatest": 9.0, "rounds": [2.0, 3.0, 9.0]}
    assert ratio(figures, "one", "other") == 2.0


def test_rates_are_of_cpu_time_and_threads_begin_together() -> None:
    calls: list[int] = []
    assert cpu_rate(calls.append, 10, 0.01) > 0
    assert calls[:2] == [0, 0]
    seen = set()

    def work(number: int) -> int:
        seen.add((number, threading.get_ident()))
        return 5

    assert threads.wall_rate(work, 2, 0.01) > 0
    assert {number for number, _ in seen} == {0, 1}
    assert len({thread for _, thread in seen}) == 2
    rounds = {"spin loop, 1": [1.0], "spin loop, 2": [1.6], "step, 1": [10.0], "step, 2": [12.0]}
    assert threads.scaling({name: {"rounds": found} for name, found in rounds.items()}, "step") == pytest.approx(0.75)


def test_wrong_rows_and_steps_are_counted() -> None:
    rows = OwnRows(1000)
    numbers = batches_of(1000, 200, 1)[0]
    assert len(set(numbers.tolist())) == 200
    assert rows.wrong_rows(numbers) == 0
    rows.table.insert(keys_of(numbers[:3]), values_of(numbers[:3]) + 1e-3)
    assert rows.wrong_rows(numbers) == 3
    gradients = np.ones((197, DIM), np.float32)
    assert rows.wrong_steps(numbers[3:], gradients) == 0
    # These rows are no longer new.
    assert rows.wrong_steps(numbers[3:], gradients) == 197


def test_torn_rows_are_found() -> None:
    rows = OwnRows(
        0, optimizer={"kind": "adagrad", "initial_accumulator": 1.0, "epsilon": 0.0}, initializer={"kind": "zeros"}
    )
    keys = keys_of(np.arange(50))
    for updates in range(1, 6):
        rows.step(keys[10 * (updates - 1) :], np.ones((60 - 10 * updates, DIM), np.float32))
    found = rows.table.read(keys)
    weights, slots = found.weights.numpy(), found.slots.numpy()
    assert set(slots[:, 0]) == {2.0, 3.0, 4.0, 5.0, 6.0}
    assert pauses.torn(weights, slots) == 0
    mixed = weights.copy()
    mixed[7, DIM // 2 :] = weights[49, 0]
    assert pauses.torn(mixed, slots) == 1
    older = slots.copy()
    older[40:43] -= 1
    assert pauses.torn(weights, older) == 3


def test_planted_clicks_follow_their_chances() -> None:
    world = PlantedFeatures(1000)
    samples = world.draw(4, 2000)
    assert samples.ids.shape == (4, 2000, FEATURES)
    assert (samples.ids.max(axis=(0, 1)) < world.sizes).all()
    assert samples.clicked.mean() == pytest.approx(samples.chance.mean(), abs=0.03)
    assert len(np.unique(samples.keys(0))) == len(np.unique(samples.ids[:, :, 0]))


def test_a_quick_run_checks_answers_and_writes_them(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    assert bench_elastic.main(["--quick", "--only", "pauses", "--output", str(output)]) == 0
    results = json.loads(output.read_text())
    assert {"keras", "tensorflow", "tf_keras"} <= results["environment"]["versions"].keys()
    case = results["cases"]["pauses"]
    assert case["wrong"] == 0
    assert min(case["evicted"], case["cuts"], case["rows_read"]) > 0
    assert case["rows"][2] > case["rows"][1]
    assert all(case["phases"][phase]["calls"] > 0 for phase in pauses.PHASES)


def test_wrong_answers_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"elastic": _median(1e9), "wrong": 1}
    monkeypatch.setattr(_cases, "run_in_process", lambda measure, setup: case)
    output = tmp_path / "results.json"
    assert bench_elastic.main(["--only", "lookup", "--output", str(output)]) == 1
    assert json.loads(output.read_text())["targets"][0]["ok"]


def test_a_case_that_fails_leaves_the_results_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(measure: bench_elastic.Measure, setup: Setup) -> dict[str, Any]:
        if measure is memory.measure:
            raise MemoryError("no memory for rows")
        return {"elastic": _median(1e9), "wrong": 0}

    monkeypatch.setattr(_cases, "run_in_process", run)
    output = tmp_path / "results.json"
    assert bench_elastic.main(["--only", "memory", "lookup", "--output", str(output)]) == 1
    results = json.loads(output.read_text())
    assert results["cases"]["memory"] == {"failed": "MemoryError: no memory for rows"}
    assert [target["ok"] for target in results["targets"]] == [True]


def test_forms_of_the_dlrm_have_the_same_tower() -> None:
    sizes = PlantedFeatures(60).sizes
    towers = {
        form: [tuple(weight.shape) for weight in dlrm.build(form, sizes).trainable_weights if len(weight.shape) == 2]
        for form in dlrm.FORMS
    }
    tables = {(int(size), DIM) for size in sizes}
    for form, shapes in towers.items():
        assert [shape for shape in shapes if shape not in tables] == towers["tower"], form
        assert len(shapes) - len(towers["tower"]) == (FEATURES if form.startswith("dense") else 0)


def test_sizes_of_a_measurement() -> None:
    setup = Setup(quick=False)
    assert (setup.keys, BATCH, DIM) == (2_000_000, 8192, 16)
