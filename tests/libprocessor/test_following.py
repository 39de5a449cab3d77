# SPDX-License-Identifier: Apache-2.0
"""Models follow a timeline of deltas while they are served."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools.store.compaction import compact
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.store.truncation import truncate
from helpers.hosts.state_directory import StateDirectory, entry, model_of
from helpers.hosts.tfserving_messages import tfserving_outputs, tfserving_request
from helpers.models.live_models import START, epoch_of, publish
from helpers.system.waiting import wait_until

A = {"a": np.arange(8, dtype=np.int64)}


@pytest.fixture
def writer(tmp_path: Path) -> TimelineWriter:
    return TimelineWriter(tmp_path / "timeline", START, "a test")


@pytest.fixture
def model(live_artifact: Path, writer: TimelineWriter) -> Iterator[processor.Model]:
    with processor.Model(live_artifact, {"follow": str(writer.folder), "warmup_runs": 1}) as loaded:
        yield loaded


def wait_for_epoch(model: processor.Model, epoch: int) -> dict[str, Any]:
    wait_until(lambda: model.info["live"]["epoch"] == epoch, f"epoch {epoch}")
    live: dict[str, Any] = model.info["live"]
    return live


def test_each_answer_is_of_one_epoch_and_the_last_one_is_reached(
    model: processor.Model, writer: TimelineWriter
) -> None:
    seen: list[list[float]] = [[], [], []]
    ended = threading.Event()

    def ask(epochs: list[float]) -> None:
        while not ended.is_set():
            epochs.append(epoch_of(model.run(A)))

    threads = [threading.Thread(target=ask, args=[epochs]) for epochs in seen]
    for thread in threads:
        thread.start()
    for _ in range(30):
        publish(writer)
    wait_for_epoch(model, 30)
    ended.set()
    for thread in threads:
        thread.join()
    assert all(epochs == sorted(epochs) and epochs for epochs in seen)
    assert epoch_of(model.run(A)) == 30
    live = model.info["live"]
    assert (live["refused"], live["error"], live["held"]) == (0, None, False)
    assert (live["oldest_epoch"], live["newest_epoch"]) == (22, 30)


def test_a_model_that_is_loaded_late_begins_at_the_newest_epoch(live_artifact: Path, writer: TimelineWriter) -> None:
    for _ in range(3):
        publish(writer)
    config = {"follow": str(writer.folder), "warmup_runs": 1}
    with processor.Model(live_artifact, config) as model:
        assert epoch_of(model.run(A)) == 3
    with processor.Model(live_artifact, config | {"follow_epoch": 2}) as model:
        assert epoch_of(model.run(A)) == 2
        assert model.info["live"]["held"]


def test_a_hold_survives_a_compaction_of_its_epoch(live_artifact: Path, writer: TimelineWriter) -> None:
    for _ in range(3):
        publish(writer)
    compact(writer.folder)
    with processor.Model(live_artifact, {"follow": str(writer.folder), "warmup_runs": 1, "follow_epoch": 2}) as model:
        assert epoch_of(model.run(A)) == 0, "rather an older epoch than one that was rolled back"
        live = wait_until(lambda: model.info["live"] if model.info["live"]["refused"] else None, "a refusal")
        assert live["refused"] == 1
        assert "expected a segment that ends with epoch 2" in live["error"]


def test_a_model_in_the_middle_of_compacted_epochs_continues_and_can_return(
    model: processor.Model, writer: TimelineWriter
) -> None:
    for _ in range(3):
        publish(writer)
    wait_for_epoch(model, 3)
    elsewhere = writer.folder.rename(writer.folder.with_name("elsewhere"))
    again = TimelineWriter(elsewhere, START)
    for _ in range(5):
        publish(again)
    compact(elsewhere)
    elsewhere.rename(writer.folder)
    live = wait_for_epoch(model, 8)
    assert epoch_of(model.run(A)) == 8
    assert (live["error"], live["oldest_epoch"], live["newest_epoch"]) == (None, 0, 8)


def test_models_of_one_timeline_share_changed_rows(live_artifact: Path, writer: TimelineWriter) -> None:
    config = {"follow": str(writer.folder), "warmup_runs": 1}
    with processor.Model(live_artifact, config) as first, processor.Model(live_artifact, config) as second:
        for _ in range(12):
            publish(writer)
        for model in (first, second):
            wait_for_epoch(model, 12)
            assert epoch_of(model.run(A)) == 12
        with (
            processor.Model(live_artifact, config) as late,
            processor.Model(live_artifact, config | {"follow_epoch": 2}) as held,
        ):
            publish(writer)
            for model, epoch in ((first, 13), (second, 13), (late, 13), (held, 2)):
                wait_for_epoch(model, epoch)
                assert epoch_of(model.run(A)) == epoch
        assert epoch_of(first.run(A)) == epoch_of(second.run(A)) == 13


def test_a_faulty_segment_is_refused_until_the_right_one_is_there(
    model: processor.Model, writer: TimelineWriter, tmp_path: Path
) -> None:
    publish(writer)
    wait_for_epoch(model, 1)
    copy = shutil.copytree(writer.folder, tmp_path / "copy")
    right = publish(TimelineWriter(copy, START)).path
    damaged = bytearray(right.read_bytes())
    damaged[300] ^= 1
    place = writer.folder / right.name
    (copy / "damaged").write_bytes(damaged)
    (copy / "damaged").rename(place)
    wait_until(lambda: model.info["live"]["refused"] == 1, "the refusal")
    live = model.info["live"]
    assert str(place) in live["error"]
    assert epoch_of(model.run(A)) == live["epoch"] == 1
    right.replace(place)
    assert wait_for_epoch(model, 2)["error"] is None


def test_nan_is_served_if_the_configuration_permits_it(live_artifact: Path, writer: TimelineWriter) -> None:
    publish(TimelineWriter(writer.folder, START, permit_not_finite=True), float("nan"))
    config = {"follow": str(writer.folder), "follow_permit_not_finite": True, "warmup_runs": 1}
    with processor.Model(live_artifact, config) as model:
        assert (model.info["live"]["epoch"], model.info["live"]["error"]) == (1, None)
        assert np.isnan(model.run(A)["rows"]).all()


def test_nan_is_refused_until_it_is_withdrawn(model: processor.Model, writer: TimelineWriter) -> None:
    publish(writer)
    wait_for_epoch(model, 1)
    publish(TimelineWriter(writer.folder, START, permit_not_finite=True), float("nan"))
    wait_until(lambda: model.info["live"]["refused"] == 1, "the refusal")
    assert "finite" in model.info["live"]["error"]
    assert epoch_of(model.run(A)) == 1
    truncate(writer.folder, 1)
    publish(TimelineWriter(writer.folder, START))
    assert wait_for_epoch(model, 2)["error"] is None


def test_a_model_with_a_withdrawn_epoch_says_so_and_goes_on_when_it_is_loaded_again(
    live_artifact: Path, model: processor.Model, writer: TimelineWriter
) -> None:
    for value in (1, 7):
        publish(writer, value)
    wait_for_epoch(model, 2)
    truncate(writer.folder, 1)
    later = TimelineWriter(writer.folder, START)
    for _ in range(2):
        publish(later)
    wait_until(lambda: model.info["live"]["refused"] == 1, "the refusal")
    assert "another history" in model.info["live"]["error"]
    assert epoch_of(model.run(A)) == 7, "no mixed chain"
    with processor.Model(live_artifact, {"follow": str(writer.folder), "warmup_runs": 1}) as again:
        assert epoch_of(again.run(A)) == 3


def test_a_timeline_that_disappears_changes_nothing(model: processor.Model, writer: TimelineWriter) -> None:
    publish(writer)
    wait_for_epoch(model, 1)
    kept = writer.folder.rename(writer.folder.with_name("elsewhere"))
    wait_until(lambda: model.info["live"]["error"] is not None, "the error")
    assert str(writer.folder) in model.info["live"]["error"]
    assert epoch_of(model.run(A)) == 1
    kept.rename(writer.folder)
    publish(writer)
    assert wait_for_epoch(model, 2)["error"] is None


def test_only_live_models_follow(live_artifact: Path, scaled_models: dict[int, Path], tmp_path: Path) -> None:
    with pytest.raises(processor.FailedPreconditionError, match="a model that is not live, expected what"):
        processor.Model(scaled_models[2], {"follow": str(tmp_path)})
    with pytest.raises(processor.InvalidArgumentError, match="'follow': \"deltas\" found, expected a path that begins"):
        processor.Model(live_artifact, {"follow": "deltas"})
    with pytest.raises(processor.InvalidArgumentError, match=r"'follow_epoch'.*follows no timeline"):
        processor.Model(live_artifact, {"follow_epoch": 3})
    with processor.Model(live_artifact) as model:
        assert epoch_of(model.run(A)) == 0
        assert model.info["live"] is None


def ask_host(host: processor.Host, **more: Any) -> processor.Answer:
    return host.process("tfserving", tfserving_request(A, name="m"), **more)


def test_a_host_follows_holds_and_resumes(
    host: processor.Host, state: StateDirectory, live_artifact: Path, writer: TimelineWriter
) -> None:
    follow = {"follow": str(writer.folder)}
    state.serve(host, {"m": model_of(live_artifact, 1, **follow)})
    assert ask_host(host).epoch == 0
    now_us = time.time_ns() // 1000
    for _ in range(3):
        publish(writer, event_time=now_us - 5_000_000)
    wait_until(lambda: ask_host(host).epoch == 3, "epoch 3")
    answer = ask_host(host)
    assert epoch_of(tfserving_outputs(answer.data)) == 3
    assert 5_000_000 <= answer.age_us < 60_000_000

    state.serve(host, {"m": model_of(live_artifact, 1, **follow, epoch=2)})
    wait_until(lambda: ask_host(host).epoch == 2, "the roll-back")
    publish(writer)
    begin = time.monotonic()
    with pytest.raises(processor.FailedPreconditionError, match="epoch 4 expected, the model is held at 2"):
        ask_host(host, metadata={"x-min-epoch": "4"})
    assert time.monotonic() - begin < 5, "it ends at once"
    time.sleep(0.3)
    assert ask_host(host).epoch == 2, "it holds until it is told to resume"
    assert entry(host, "m", 1)["state"] == "ready"
    assert 'recprocessor_live_held{model="m",version="1"} 1' in host.metrics()
    state.serve(host, {"m": model_of(live_artifact, 1, **follow)})
    wait_until(lambda: ask_host(host).epoch == 4, "epoch 4")
    text = host.metrics()
    assert 'recprocessor_live_epoch{model="m",version="1"} 4' in text
    assert 'recprocessor_live_refused_total{model="m",version="1"} 0' in text


def test_the_memory_of_a_version_includes_changed_rows(
    host: processor.Host, state: StateDirectory, live_artifact: Path, writer: TimelineWriter
) -> None:
    version = {"path": str(live_artifact), "follow": str(writer.folder)}
    state.serve(host, {"m": {"baseline": 1, "versions": {"1": version, "2": version}}})
    for _ in range(12):
        publish(writer)
    wait_until(lambda: ask_host(host).epoch == 12, "epoch 12")
    files = [path for name in ("variables", "assets") for path in (live_artifact / name).rglob("*") if path.is_file()]
    tables = sum(path.stat().st_size for path in files if path.suffix == ".emb")
    others = sum(path.stat().st_size for path in (live_artifact / "saved_model.pb", *files)) - tables

    def is_counted() -> bool:
        found = re.search(r'recprocessor_live_overlay_bytes\{model="m",version="1"\} (\d+)', host.metrics())
        changed = int(found[1]) if found else 0
        status = host.status()
        versions = status["models"]["m"]["versions"].values()
        counted = [each["memory_bytes"] - others - tables for each in versions]
        return (
            changed > 0
            and all(abs(each - changed) <= changed / 8 for each in counted)
            and status["memory_bytes"] == 2 * others + tables + max(counted)
        )

    wait_until(is_counted, "the memory of the changed rows, once for both versions")


def test_requests_wait_for_the_epoch_that_they_ask_for(
    host: processor.Host,
    state: StateDirectory,
    live_artifact: Path,
    writer: TimelineWriter,
    scaled_models: dict[int, Path],
) -> None:
    models = {"m": model_of(live_artifact, 1, follow=str(writer.folder)), "tiny": model_of(scaled_models[2])}
    state.serve(host, models)
    publish(writer)
    assert ask_host(host, metadata={"x-min-epoch": "1"}).epoch == 1
    later = threading.Timer(0.2, publish, [writer])
    later.start()
    assert ask_host(host, metadata={"x-min-epoch": "2"}, deadline=time.monotonic() + 60).epoch == 2
    later.join()
    begin = time.monotonic()
    with pytest.raises(processor.FailedPreconditionError, match="epoch 9 expected, the model has reached 2"):
        ask_host(host, metadata={"x-min-epoch": "9"}, deadline=time.monotonic() + 0.2)
    assert time.monotonic() - begin < 10
    with pytest.raises(processor.InvalidArgumentError, match="'x-min-epoch' 'new', expected the number of an epoch"):
        ask_host(host, metadata={"x-min-epoch": "new"})


def test_a_request_for_an_epoch_never_waits_on_a_thread_that_others_need(
    host: processor.Host, state: StateDirectory, live_artifact: Path, writer: TimelineWriter
) -> None:
    state.serve(host, {"m": model_of(live_artifact, 1, follow=str(writer.folder))})
    begin = time.monotonic()
    with pytest.raises(processor.AbortedError) as refused:
        ask_host(host, metadata={"x-min-epoch": "9"}, only_if_bounded=True)
    assert refused.value.answer is None, "the caller repeats it asynchronously"
    assert time.monotonic() - begin < 5


def test_asynchronous_requests_wait_for_an_epoch_too(
    host: processor.Host, state: StateDirectory, live_artifact: Path, writer: TimelineWriter
) -> None:
    import asyncio

    state.serve(host, {"m": model_of(live_artifact, 1, follow=str(writer.folder))})

    async def ask(epoch: int, deadline: float) -> Any:
        request = tfserving_request(A, name="m")
        return await host.aprocess(
            "tfserving", request, metadata={"x-min-epoch": str(epoch)}, deadline=time.monotonic() + deadline
        )

    async def ask_both() -> list[Any]:
        asked = [asyncio.create_task(ask(1, 60)), asyncio.create_task(ask(2, 0.2))]
        await asyncio.sleep(0.4)
        publish(writer)
        return await asyncio.gather(*asked, return_exceptions=True)

    answer, error = asyncio.run(ask_both())
    assert answer.epoch == 1
    assert isinstance(error, processor.FailedPreconditionError)


def test_a_request_that_waits_for_an_epoch_does_not_slow_down_others(
    host: processor.Host, state: StateDirectory, live_artifact: Path, writer: TimelineWriter
) -> None:
    import asyncio

    from serving_proxy.host.call import Call, Operation
    from serving_proxy.host.engine import Engine
    from serving_proxy.host.inline_execution import kind_of

    state.serve(host, {"m": model_of(live_artifact, 1, follow=str(writer.folder))})
    call = Call(Operation("tfserving", "Predict"), tfserving_request(A, name="m"))
    waiting = Call(call.operation, call.data, metadata={"x-min-epoch": "1"})
    kind = kind_of(call)

    async def ask() -> None:
        engine = Engine(host)
        short = (await engine.answer_later(call, kind))._replace(decode_ns=0, run_ns=1, encode_ns=0)
        for _ in range(100):
            engine._durations.learn(kind, short, inline=False)
        later = asyncio.create_task(engine.answer(waiting))
        await asyncio.sleep(0.1)
        answer = engine.answer_now(call, kind)
        assert answer is not None
        assert answer.epoch == 0
        publish(writer)
        assert (await later).epoch == 1

    asyncio.run(ask())
