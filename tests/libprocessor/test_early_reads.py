# SPDX-License-Identifier: Apache-2.0
"""Requests wait for rows of tiered tables without a place of a session, and answer as those of mapped tables."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import processor
from graph_tools import optimize
from helpers.models.idiom_models import export_function
from helpers.models.row_models import DIM, ask, damage, make_row_model, table_in, values_of
from helpers.system.programs import require, run_ok

ROWS = 3000  # 288 KB: five blocks
TIERED = {"tier": "tiered", "memory": 100_000}
ONE_PLACE = {"session_num": 1, "worker_threads": 1, "warmup_runs": 1}
FAIL_READS = Path(__file__).parent / "failing_reads" / "fail_reads.cc"

#: Requests of a model with one session whose table is on a device that does not answer. In a process of its own,
#: because functions of the C library are replaced.
ASK_A_SLOW_DEVICE = """
import asyncio, ctypes, json, sys, time
from pathlib import Path
import numpy as np
import processor
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.models.live_models import START
from helpers.models.row_models import delta_of, values_of

_, library, artifact, table, timeline, config = sys.argv
config = json.loads(config)
reads = ctypes.CDLL(library)
reads.fail_reads(table.encode(), ctypes.c_long(0), ctypes.c_long(0), 0)
early = config["tables"]["early_reads"]
writer = TimelineWriter(Path(timeline), START, "a test")
model = processor.Model(artifact, config | {"follow": timeline})

def rows_of(answer):
    return answer["rows"]

def answers(found, rows, value=0):
    return bool(np.array_equal(rows_of(found), values_of(np.array(rows), value)))

async def main():
    hot, cold = [1, 2, 3], [[700 + 90 * i, 1] for i in range(20)]
    for _ in range(3):
        await model.arun({"a": hot})
    reads.hold_reads(1)
    waiting = [asyncio.create_task(model.arun({"a": rows})) for rows in cold]
    await until(lambda: reads.hold_reads(2) >= (len(cold) if early else 1))
    quick = asyncio.create_task(model.arun({"a": hot}))
    if early:
        found["quick"] = answers(await quick, hot)
        try:
            await model.arun({"a": [2500]}, deadline=time.monotonic() + 1)
        except processor.DeadlineExceededError as error:
            found["deadline"] = str(error)
        before = reads.hold_reads(2)
        stopped = asyncio.create_task(model.arun({"a": [2600]}))
        await until(lambda: reads.hold_reads(2) > before)
        stopped.cancel()
        await asyncio.wait([stopped])
        found["canceled"] = stopped.cancelled()
        # What requests wait for changes meanwhile: they answer for the epoch at which they run.
        writer.publish(delta_of(np.array([700, 790]), 5))
        await until(lambda: model.info["live"]["epoch"] == 1)
    else:
        done, _ = await asyncio.wait([quick], timeout=0.3)
        found["quick"] = bool(done)
    found["held"] = reads.hold_reads(0)
    all_answers = await asyncio.gather(*waiting)
    await quick
    changed = 2 if early else 0
    found["wrong"] = [
        rows
        for i, (answer, rows) in enumerate(zip(all_answers, cold))
        if i >= changed and not answers(answer, rows)
    ]
    found["changed"] = [
        bool(np.array_equal(rows_of(a), np.stack([values_of(np.array(r[0]), 5), values_of(np.array(r[1]))])))
        for a, r in zip(all_answers[:changed], cold)
    ]
    found["tables"] = model.info["tables"]

async def until(condition):
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited for a minute in vain")

found = {}
try:
    asyncio.run(main())
finally:
    reads.hold_reads(0)
model.close()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_row_model(tmp_path_factory.mktemp("early"), ROWS)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("g++")
    built = tmp_path_factory.mktemp("library") / "libfail_reads.so"
    run_ok(["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", FAIL_READS, "-o", built, "-ldl"])
    return built


def _ask_a_slow_device(artifact: Path, library: Path, folder: Path, config: dict[str, Any]) -> Any:
    program = [sys.executable, "-c", ASK_A_SLOW_DEVICE, library, artifact, table_in(artifact), folder / "timeline"]
    environment = os.environ | {"LD_PRELOAD": str(library), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    output = run_ok([*program, json.dumps(ONE_PLACE | config)], env=environment)
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("batching", [{}, {"batching": {"mode": "zero_wait"}}], ids=["alone", "batched"])
def test_requests_that_wait_for_the_device_hold_no_place(
    artifact: Path, library: Path, tmp_path: Path, batching: dict[str, Any]
) -> None:
    config = {"tables": TIERED | {"early_reads": True}} | batching
    found = _ask_a_slow_device(artifact, library, tmp_path, config)
    assert found["quick"], "a request whose rows are in memory is answered at once by the only session"
    assert found["held"] > 20, "the device has the reads of all requests, also of one that was canceled"
    assert "deadline" in found["deadline"]
    assert found["canceled"]
    assert found["wrong"] == []
    assert found["changed"] == [True, True]
    assert found["tables"]["bad_blocks"] == 0


def test_without_early_reads_a_request_holds_its_place(artifact: Path, library: Path, tmp_path: Path) -> None:
    found = _ask_a_slow_device(artifact, library, tmp_path, {"tables": TIERED | {"early_reads": False}})
    assert not found["quick"], "the only session waits for the device"
    assert found["held"] == 1
    assert found["wrong"] == []


@pytest.mark.parametrize("mode", ["off", "zero_wait", "timed"])
def test_rows_that_are_read_early_are_those_of_the_mapped_table(artifact: Path, mode: str) -> None:
    config = ONE_PLACE | {"tables": TIERED, "batching": {"mode": mode}}
    random = np.random.default_rng(3)
    requests = [random.integers(ROWS, size=random.integers(1, 60)) for _ in range(120)]

    async def ask_all(model: processor.Model) -> list[Any]:
        return await asyncio.gather(*(model.arun({"a": rows}) for rows in requests))

    with processor.Model(artifact, config) as model:
        for _ in range(3):
            for rows, answer in zip(requests, asyncio.run(ask_all(model)), strict=True):
                assert np.array_equal(answer["rows"], values_of(rows))
        tables = model.info["tables"]
        assert 0 < tables["hits"] < tables["lookups"]
        assert 0 < tables["early_rows"] <= tables["lookups"] - tables["hits"]
        assert np.array_equal(ask(model, requests[0]), values_of(requests[0])), "a request whose caller waits"


def test_keys_that_come_as_they_are_are_read_early(tmp_path: Path) -> None:
    tables = [tf.Variable(values_of(np.arange(ROWS), number), name=f"table{number}") for number in range(4)]
    bias = tf.Variable(np.zeros(4 * DIM, np.float32), name="bias")

    def serve(a: tf.Tensor, b: tf.Tensor, c: tf.Tensor, d: tf.Tensor) -> dict[str, tf.Tensor]:
        keys = (
            a,
            tf.cast(tf.squeeze(b, 1), tf.int64),
            tf.strings.to_hash_bucket_fast(c, ROWS),
            tf.cast(tf.floor(d * 2), tf.int64),  # this one is computed
        )
        rows = [tf.gather(table, key) for table, key in zip(tables, keys, strict=True)]
        return {"rows": tf.nn.relu(tf.concat(rows, 1) + bias)}

    specs = [
        tf.TensorSpec([None], tf.int64, name="a"),
        tf.TensorSpec([None, 1], tf.int32, name="b"),
        tf.TensorSpec([None], tf.string, name="c"),
        tf.TensorSpec([None], tf.float32, name="d"),
    ]
    variables = {variable.name.split(":")[0]: variable for variable in (*tables, bias)}
    source = export_function(tmp_path / "export", serve, specs, **variables)
    optimize(source, tmp_path / "artifact", precision="fp32", accept_weak_proof=True)
    inputs = {"a": np.array([5, 6]), "b": np.array([[7], [8]], np.int32), "c": np.array([b"x", b"y"], object)}
    inputs["d"] = np.array([10, 11], np.float32)
    config: dict[str, Any] = ONE_PLACE | {"tables": {"tier": "tiered", "memory": 400_000}}
    with (
        processor.Model(tmp_path / "artifact", {"warmup_runs": 1}) as mapped,
        processor.Model(tmp_path / "artifact", config) as tiered,
    ):
        before = tiered.info["tables"]
        assert np.array_equal(asyncio.run(tiered.arun(inputs))["rows"], mapped.run(inputs)["rows"])
        after = tiered.info["tables"]
    assert after["lookups"] - before["lookups"] == 8
    assert after["early_rows"] - before["early_rows"] == 6, "all rows but those of the key that is computed"


def test_a_damaged_block_fails_only_what_needs_it(tmp_path: Path) -> None:
    artifact = make_row_model(tmp_path, ROWS)
    table = table_in(artifact)
    with processor.Model(artifact, ONE_PLACE | {"tables": TIERED}) as model:
        damage(table, 4096 + 1500 * 96)  # in the row 1500, and so in block 2
        with pytest.raises(processor.DataLossError, match=rf"'{table}': block 2 of 5: wrong checksum"):
            asyncio.run(model.arun({"a": [3, 1500]}))
        assert np.array_equal(asyncio.run(model.arun({"a": [3, 2500]}))["rows"], values_of(np.array([3, 2500])))


def test_early_reads_of_other_tiers_are_refused(artifact: Path) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=r"early_reads: set, expected nothing"):
        processor.Model(artifact, {"tables": {"early_reads": False}})
