# SPDX-License-Identifier: Apache-2.0
"""The precision of a model that follows a timeline is checked on recorded requests when its weights have changed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools import optimize
from graph_tools.graph.op_library import library_info, load_library
from graph_tools.readers import read_model
from graph_tools.store.delta import Delta
from graph_tools.store.lineage import write_lineage
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import ArrayTensor
from helpers.graph_tools.deep_models import FEATURES, HUGE, build_deep
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.hosts.tfserving_messages import tfserving_outputs, tfserving_request
from helpers.models.live_models import START
from helpers.models.warmup_records import write_records
from helpers.system.waiting import wait_until

REQUESTS, ROWS = 40, 20
Weights = dict[str, np.ndarray]


def requests() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(size=(ROWS, FEATURES)).astype(np.float32) for _ in range(REQUESTS)]


X = {"x": np.concatenate(requests())}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = build_deep(tmp_path_factory.mktemp("deep") / "model")
    write_records(source, [tfserving_request({"x": x}) for x in requests()])
    write_lineage(source, START)
    return source


@pytest.fixture(scope="module")
def weights(source: Path) -> Weights:
    return {name: tensor.read() for name, tensor in read_model(source).variables.items() if tensor.dtype == np.float32}


@pytest.fixture(scope="module")
def artifact(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("live") / "artifact"
    report = optimize(source, out, live=True, samples=8)
    assert report.precision is not None
    assert report.precision.permitted != "fp32"
    return out


@pytest.fixture(scope="module")
def unchecked(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the artifact without its recorded requests."""
    copy = shutil.copytree(artifact, tmp_path_factory.mktemp("unchecked") / "artifact")
    (copy / "assets.extra/tf_serving_warmup_requests").unlink()
    return copy


@pytest.fixture
def writer(tmp_path: Path) -> TimelineWriter:
    return TimelineWriter(tmp_path / "timeline", START, "a test")


@pytest.fixture
def model(artifact: Path, writer: TimelineWriter) -> Iterator[processor.Model]:
    with follow(artifact, writer) as loaded:
        yield loaded


def follow(artifact: Path, writer: TimelineWriter, **config: Any) -> processor.Model:
    return processor.Model(artifact, {"follow": str(writer.folder), "warmup_runs": 1, **config})


def publish(writer: TimelineWriter, changed: Weights) -> None:
    writer.publish(Delta((), {name: ArrayTensor(value.astype(np.float32)) for name, value in changed.items()}))


def harmless(weights: Weights) -> Weights:
    random = np.random.default_rng(1)
    return {name: value + 1e-3 * random.normal(size=value.shape) for name, value in weights.items()}


def cancelling(weights: Weights) -> Weights:
    """Make the score a small difference of numbers, which rounded weights make wrong."""
    hidden, bias, last = (np.array(weights[name]) for name in ("w2", "b2", "w3"))
    half = len(last) // 2
    hidden[:, half:] = hidden[:, :half] * (1 + 1e-3 * np.random.default_rng(5).normal(size=(len(hidden), half)))
    last[half:] = -last[:half]
    return {"w2": hidden, "b2": np.full_like(bias, 0.1), "w3": last}


def huge(weights: Weights) -> Weights:
    """Let the second layer read one huge number in each row, which leaves int8 no steps for the others."""
    first, bias, second = (np.array(weights[name]) for name in ("w0", "b0", "w1"))
    first[:, 0], bias[0] = 0.0, HUGE
    second[0] *= 1e-2 / HUGE
    return {"w0": first, "b0": bias, "w1": second}


def scores(model: processor.Model) -> np.ndarray:
    return np.array(model.run(X)["score"])


def wait_for_check(model: processor.Model, epoch: int) -> dict[str, Any]:
    wait_until(lambda: model.info["live"]["precision"]["epoch"] == epoch, f"the check of epoch {epoch}")
    precision: dict[str, Any] = model.info["live"]["precision"]
    return precision


def scores_in(precision: str, artifact: Path, writer: TimelineWriter) -> np.ndarray:
    """Return the scores of the newest epoch in another precision."""
    with follow(artifact, writer, precision=precision) as model:
        return scores(model)


def test_weights_that_bear_the_precision_keep_it(
    model: processor.Model, writer: TimelineWriter, weights: Weights
) -> None:
    before = model.info["precision"]
    assert model.info["live"]["precision"]["outcome"] == "no epoch was checked yet"
    publish(writer, harmless(weights))
    found = wait_for_check(model, 1)
    assert (found["precision"], found["fell_back"], found["checks"]) == (before, False, 1)
    assert (found["requests"], found["rows"]) == (REQUESTS, REQUESTS * ROWS)
    assert 0 < found["rank_correlation_loss"] < 1e-3
    assert found["outcome"].startswith(f"epoch 1, {REQUESTS} recorded requests with {REQUESTS * ROWS} rows: ")
    assert model.info["precision"] == before


def test_weights_that_lose_the_order_of_scores_are_served_in_fp32(
    model: processor.Model, unchecked: Path, writer: TimelineWriter, weights: Weights
) -> None:
    answers, ended = [scores(model)], threading.Event()
    before = answers[0]

    def ask() -> None:
        while not ended.is_set():
            answers.append(scores(model))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        publish(writer, cancelling(weights))
        wait_for_check(model, 1)
        wait_until(lambda: model.info["precision"] == "fp32", "fp32")
    finally:
        ended.set()
        asking.join()
    after = scores(model)
    np.testing.assert_array_equal(after, scores_in("fp32", unchecked, writer))
    rounded = scores_in("auto", unchecked, writer)
    assert not np.array_equal(after, rounded)
    assert all(any(np.array_equal(answer, wanted) for wanted in (before, rounded, after)) for answer in answers)
    found = model.info["live"]["precision"]
    assert found["fell_back"]
    assert "output 'score': loses " in found["reason"]
    assert found["reason"].endswith("expected at most 0.001; computes in fp32 until it is loaded again")
    assert model.info["precision_reason"] == found["reason"]
    # It stays in fp32, whatever comes.
    publish(writer, weights)
    wait_until(lambda: model.info["live"]["epoch"] == 2, "epoch 2")
    np.testing.assert_array_equal(scores(model), scores_in("fp32", unchecked, writer))
    assert model.info["live"]["precision"]["checks"] == 1


@pytest.mark.skipif("int8" not in library_info(load_library()).precisions, reason="the CPU has no AVX512_VNNI")
def test_weights_that_bear_bf16_but_not_int8_are_served_in_bf16(
    model: processor.Model, unchecked: Path, writer: TimelineWriter, weights: Weights
) -> None:
    assert model.info["precision"] == "int8"
    publish(writer, huge(weights))
    wait_until(lambda: model.info["precision"] != "int8", "another precision")
    assert model.info["precision"] in {"bf16", "bf16 weights"}
    assert "in int8" in model.info["precision_reason"]
    np.testing.assert_array_equal(scores(model), scores_in("bf16", unchecked, writer))


def test_a_roll_back_keeps_the_decision(
    host: processor.Host, state: StateDirectory, artifact: Path, writer: TimelineWriter, weights: Weights
) -> None:
    def serve(**more: Any) -> None:
        state.serve(host, {"m": model_of(artifact, 1, follow=str(writer.folder), **more)})

    def ask(epoch: int) -> np.ndarray:
        wait_until(lambda: host.process("tfserving", tfserving_request(X, name="m")).epoch == epoch, f"epoch {epoch}")
        return tfserving_outputs(host.process("tfserving", tfserving_request(X, name="m")).data)["score"]

    serve()
    ask(0)
    publish(writer, harmless(weights))
    rounded = ask(1)
    publish(writer, cancelling(weights))
    fell_back = 'recprocessor_live_precision_fell_back{model="m",version="1"} 1'
    wait_until(lambda: fell_back in host.metrics(), "fp32")
    ask(2)
    serve(epoch=1)
    exact = ask(1)
    assert not np.array_equal(exact, rounded)
    with follow(artifact, writer, precision="fp32", follow_epoch=1) as model:
        np.testing.assert_array_equal(exact, scores(model))


def test_what_is_not_checked_says_so(unchecked: Path, source: Path, writer: TimelineWriter, tmp_path: Path) -> None:
    with follow(unchecked, writer) as model:
        assert model.info["live"]["precision"]["outcome"] == "not checked: the model has no recorded requests"
    with follow(unchecked, writer, precision="fp32") as model:
        assert model.info["live"]["precision"]["outcome"] == "not checked: fp32 needs no check"
    optimize(source, tmp_path / "forced", live=True, samples=8, precision="bf16")
    with follow(tmp_path / "forced", writer) as model:
        precision = model.info["live"]["precision"]
        assert precision["outcome"] == f"not checked: {precision['precision']} is forced"
        assert precision["precision"] != "fp32"
