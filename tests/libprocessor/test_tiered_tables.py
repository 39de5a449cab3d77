# SPDX-License-Identifier: Apache-2.0
"""Tables larger than memory answer as mapped ones do; faults of their files fail only requests that need them."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import processor
from graph_tools.plans import EmbeddingPlan
from graph_tools.plans.embedding_parts import GroupOutput, Key, Lookup
from graph_tools.store.layout import ROW_TYPES
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.tensors import ArrayTensor
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.hosts.tfserving_messages import tfserving_outputs, tfserving_request
from helpers.models.embedding_tables import keys_of, rows_of
from helpers.models.live_models import START
from helpers.models.row_models import DIM, ask, damage, delta_of, make_row_model, table_in, values_of
from helpers.oracles.embedding_groups import Group, table_of
from helpers.oracles.stock_cases import cases
from helpers.system.failing_device import mounted_device
from helpers.system.programs import require, run_ok
from helpers.system.waiting import wait_until

ROWS = 3000  # 288 KB: five blocks
MEMORY = 100_000
TIERED = {"tables": {"tier": "tiered", "memory": MEMORY}, "warmup_runs": 1}

FAIL_READS = Path(__file__).parent / "failing_reads" / "fail_reads.cc"

#: Asks a model for lists of rows while reads of its table fail or are disturbed. Prints for each list the error or the
#: answer, and the number of reads. In a process of its own, because a function of the C library is replaced.
ASK_DESPITE_FAULTS = """
import ctypes, json, sys
import numpy as np
import processor

_, library, artifact, table, config, steps = sys.argv
reads, found = ctypes.CDLL(library), []
with processor.Model(artifact, json.loads(config)) as model:
    for begin, end, disturbs, rows in json.loads(steps):
        reads.fail_reads(table.encode(), ctypes.c_long(begin), ctypes.c_long(end), disturbs)
        try:
            answer = model.run({"a": np.array(rows, np.int64)})["rows"].tolist()
        except processor.DataLossError as error:
            answer = str(error)
        found.append([answer, reads.fail_reads(table.encode(), ctypes.c_long(0), ctypes.c_long(0), 0)])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_row_model(tmp_path_factory.mktemp("tiered"), ROWS)


@pytest.fixture
def copied(artifact: Path, tmp_path: Path) -> Path:
    """A copy whose table may be damaged."""
    return Path(shutil.copytree(artifact, tmp_path / "artifact"))


def test_a_tiered_model_answers_as_a_mapped_one(artifact: Path) -> None:
    random = np.random.default_rng(0)
    with processor.Model(artifact, {"warmup_runs": 1}) as mapped, processor.Model(artifact, TIERED) as tiered:
        assert mapped.info["tables"] is None
        for n in [1, 7, *[300] * 40, 5000]:
            rows = random.integers(ROWS, size=n)
            answer = ask(tiered, rows)
            assert np.array_equal(answer, ask(mapped, rows))
            assert np.array_equal(answer, values_of(rows))
        tables = tiered.info["tables"]
    assert tables["tier"] == "tiered"
    assert not tables["warming"]
    assert tables["checked_blocks"] == tables["blocks"] == 5
    assert tables["index_bytes"] == 0
    assert 0 < tables["cache_bytes"] < MEMORY
    assert 0 < tables["cached_rows"] <= tables["cache_rows"] < ROWS
    assert 0 < tables["hits"] < tables["lookups"]
    assert tables["reads"] <= tables["lookups"] - tables["hits"]
    assert tables["bad_blocks"] == 0


def test_a_model_is_warming_until_its_blocks_were_read(artifact: Path) -> None:
    with processor.Model(artifact, TIERED | {"tables": {"tier": "tiered", "memory": "90KB"}}) as model:
        ask(model, [0, 1])
        assert model.info["tables"]["warming"]
        ask(model, np.arange(ROWS))
        assert not model.info["tables"]["warming"]


@pytest.mark.parametrize("share", [0, 0.3, 2])
def test_groups_answer_as_with_mapped_tables(tmp_path: Path, share: float) -> None:
    for number, case in enumerate(cases("group", 17, 12)):
        (tmp_path / f"{number}").mkdir()
        tables = [table_of(tmp_path / f"{number}", table) for table in case.tables]
        types = [source.dtype for source in case.inputs]
        mapped, tiered = (
            Group(case.attributes["plan"], types, tables, outputs=case.outputs, cache_share=kept)
            for kept in (None, share)
        )
        for _ in range(2):
            for found, wanted in zip(tiered(*case.inputs), mapped(*case.inputs), strict=True):
                assert np.array_equal(found, wanted, equal_nan=True)
        mapped.close()
        tiered.close()


@pytest.mark.parametrize("kind", ["int64", "string"])
@pytest.mark.parametrize("row_type", ROW_TYPES)
def test_keys_of_several_tables_answer_as_with_mapped_tables(tmp_path: Path, kind: str, row_type: str) -> None:
    count, keys = 700, keys_of(kind, 700)
    assert keys is not None
    default = ArrayTensor(rows_of(3, 12, 5))
    one = table_of(tmp_path, rows_of(count, 12), keys, row_type=row_type, absent_key="default", default_rows=default)
    two = table_of(tmp_path, rows_of(count, 33, 1), keys)
    empty: Any = "user" if kind == "string" else int(keys[9])
    columns = (
        Lookup(0, 0, 0, 0, "mean", empty=empty),
        Lookup(0, 1, 0, 12, "sum"),
        Lookup(0, 0, 0, 45, "sqrtn", weights=1),
        Lookup(0, 1, 1, 0),
    )
    plan = EmbeddingPlan((GroupOutput(57), GroupOutput(4 * 33)), (Key(0),), columns)
    random = np.random.default_rng(1)
    mapped, tiered = (
        Group(plan, [keys.dtype, np.float32], [one, two], outputs=2, cache_share=share) for share in (None, 0.2)
    )
    for n in (1, 5, 700, 2000):
        batch = keys[random.integers(count, size=(n, 4))]
        batch[0, 0] = b"none" if kind == "string" else 10 * count
        weights = random.normal(size=(n, 4)).astype(np.float32)
        for found, wanted in zip(tiered(batch, weights), mapped(batch, weights), strict=True):
            assert np.array_equal(found, wanted)
    mapped.close()
    tiered.close()


def test_a_damaged_block_fails_the_requests_that_need_it(copied: Path) -> None:
    table = table_in(copied)
    with processor.Model(copied, TIERED) as model:
        damage(table, 4096 + 1500 * DIM * 4)  # in the row 1500, and so in block 2
        for _ in range(2):
            with pytest.raises(processor.DataLossError, match=rf"'{table}': block 2 of 5: wrong checksum"):
                ask(model, [3, 1500])
        good = [0, 500, 2500, ROWS - 1]
        assert np.array_equal(ask(model, good), values_of(np.array(good)))
        assert model.info["tables"]["bad_blocks"] == 2
        damage(table, 4096 + 1500 * DIM * 4)
        assert np.array_equal(ask(model, [1500]), values_of(np.array([1500])))


def test_a_device_that_cannot_read_a_page_fails_the_requests_that_need_it(artifact: Path, tmp_path: Path) -> None:
    table = table_in(artifact)
    page = (4096 + 1500 * DIM * 4) // 4096 * 4096  # in block 2; the rows 1494 to 1536 lie in it
    good, all_rows = [0, 500, 2500, ROWS - 1], list(range(ROWS))
    steps = [
        (page, page + 4096, 0, [3, 1500]),
        (page, page + 4096, 0, good),
        (0, 0, 0, [1500]),
        # The block has been checked now, so its other rows are read alone.
        (page, page + 4096, 0, [3, 1510]),
        (page, page + 4096, 0, [1400, 1600]),
        (0, 0, 0, [1510]),
        (0, 0, 1, all_rows),
    ]
    found = _ask_despite_faults(artifact, tmp_path, steps)
    for step, (answer, reads) in zip(steps, found, strict=True):
        if {1500, 1510} & set(step[3]) and step[1]:
            assert f"'{table}': block 2 of 5: cannot be read: Input/output error" in answer
        else:
            assert np.array_equal(np.array(answer, np.float32), values_of(np.array(step[3])))
        assert reads > 0
    assert found[-1][1] > 15, "each block by several reads, two thirds of which were interrupted"


def _ask_despite_faults(artifact: Path, folder: Path, steps: Any) -> Any:
    """Return the answer or the error, and the number of reads, for each (begin, end of what fails, disturbs, rows)."""
    require("g++")
    library = folder / "libfail_reads.so"
    run_ok(["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", FAIL_READS, "-o", library, "-ldl"])
    program = [sys.executable, "-c", ASK_DESPITE_FAULTS, library, artifact, table_in(artifact)]
    environment = os.environ | {"LD_PRELOAD": str(library), "TF_CPP_MIN_LOG_LEVEL": "3"}
    output = run_ok([*program, json.dumps(TIERED), json.dumps(steps)], env=environment)
    return json.loads(output.splitlines()[-1])


def test_rows_on_a_part_of_a_device_that_fails_are_served_again_when_it_recovers(
    artifact: Path, tmp_path: Path
) -> None:
    with mounted_device(tmp_path) as device:
        copied = Path(shutil.copytree(artifact, device.folder / "artifact"))
        os.sync()
        table = table_in(copied)
        with processor.Model(copied, TIERED) as model:
            device.fail_from(table, 4096 * (1 + 1600 * DIM * 4 // 4096))
            for _ in range(2):
                with pytest.raises(processor.DataLossError, match=rf"'{table}': block 2 of 5: cannot be read: Input/"):
                    ask(model, [3, 1700])
            with pytest.raises(processor.DataLossError, match=rf"'{table}': block 4 of 5: cannot be read: Input/"):
                ask(model, [ROWS - 1])
            good = [0, 500, 1300]
            assert np.array_equal(ask(model, good), values_of(np.array(good)))
            device.recover()
            assert np.array_equal(ask(model, np.arange(ROWS)), values_of(np.arange(ROWS)))
            assert model.info["tables"]["bad_blocks"] == 0


def test_a_file_that_became_shorter_fails_the_requests_that_need_the_rest(copied: Path) -> None:
    table = table_in(copied)
    with processor.Model(copied, TIERED) as model:
        table.chmod(0o600)
        os.truncate(table, 200_000)
        with pytest.raises(processor.DataLossError, match="ends at"):
            ask(model, [ROWS - 1])
        assert np.array_equal(ask(model, [1]), values_of(np.array([1])))


def test_a_table_that_is_removed_serves_on(copied: Path) -> None:
    with processor.Model(copied, TIERED) as model:
        table_in(copied).unlink()
        assert np.array_equal(ask(model, [1, 2999]), values_of(np.array([1, 2999])))


def test_deltas_change_tiered_tables(artifact: Path, tmp_path: Path) -> None:
    writer = TimelineWriter(tmp_path / "timeline", START, "a test")
    expected = np.zeros(ROWS)
    random = np.random.default_rng(2)
    with processor.Model(artifact, TIERED | {"follow": str(writer.folder)}) as model:
        stop = threading.Event()
        wrong: list[Any] = []

        def ask_on() -> None:
            while not stop.is_set():
                rows = np.arange(ROWS)
                shift = ask(model, rows) - values_of(rows)
                if not np.allclose(shift, shift[:, :1], atol=1e-3):
                    wrong.append(shift)

        asking = threading.Thread(target=ask_on)
        asking.start()
        for epoch in range(1, 26):
            rows = np.sort(random.choice(ROWS, 900, replace=False)).astype(np.int64)
            expected[rows] = epoch
            writer.publish(delta_of(rows, epoch))
            wait_until(lambda: model.info["live"]["epoch"] == epoch, f"epoch {epoch}")  # noqa: B023
            all_rows = np.arange(ROWS)
            np.testing.assert_array_equal(
                ask(model, all_rows), values_of(all_rows) * (expected == 0)[:, None] + _changed(expected)
            )
        stop.set()
        asking.join()
        assert not wrong
        assert model.info["tables"]["bad_blocks"] == 0


def _changed(expected: NDArray[np.float64]) -> NDArray[np.float32]:
    rows = np.arange(ROWS)
    changed: NDArray[np.float32] = np.zeros((ROWS, DIM), np.float32)
    for epoch in np.unique(expected[expected > 0]):
        which = expected == epoch
        changed[which] = values_of(rows[which], epoch)
    return changed


def test_memory_that_the_index_fills_is_refused(artifact: Path) -> None:
    with pytest.raises(processor.InvalidArgumentError, match=r"'tables\.memory': 10 bytes found, .* than 20,"):
        processor.Model(artifact, {"tables": {"tier": "tiered", "memory": 10}})


def test_a_host_reports_tiered_tables(host: processor.Host, state: StateDirectory, artifact: Path) -> None:
    tables = {"tier": "tiered", "memory": "0.1MB"}
    state.serve(host, {"m": model_of(artifact, tables=tables)})
    rows = np.arange(100)
    answer = tfserving_outputs(host.process("tfserving", tfserving_request({"a": rows}, name="m")).data)
    assert np.array_equal(answer["rows"], values_of(rows))
    text = host.metrics()
    for name in ("warming", "cache_bytes", "lookups_total", "reads_total", "bad_blocks_total"):
        assert f'recprocessor_table_{name}{{model="m",version="1"}}' in text

    def tables_of(stats: Any) -> Any:
        return stats["models"].get("m", {"versions": {"1": {}}})["versions"]["1"].get("tables")

    file = state.path / "hosts" / "host-0" / "stats.json"
    wait_until(lambda: file.exists() and tables_of(json.loads(file.read_text())), "statistics of the version")
    found = tables_of(json.loads(file.read_text()))
    assert found["lookups"] >= 100
    assert found["cache_bytes"] <= 100_000
