# SPDX-License-Identifier: Apache-2.0
"""Resident tables answer as mapped ones do, whatever becomes of their files, and processes share their memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from cost_model.planning import plan
from cost_model.workload import parse_workload
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.hosts.tfserving_messages import tfserving_outputs, tfserving_request
from helpers.models.live_models import START
from helpers.models.row_models import DIM, ask, damage, delta_of, make_row_model, table_in, values_of
from helpers.system.waiting import wait_until

ROWS = 40_000  # 3.8 MB: more than a huge page
ALL = np.arange(ROWS)
HUGE_PAGE = 2 << 20

# Loads a model, says what its tables are, and serves until it is killed.
OTHER = """
import json, sys, time
import numpy as np
import processor
model = processor.Model(sys.argv[1], json.loads(sys.argv[2]))
rows = model.run({"a": np.arange(40_000)})["rows"]
print(json.dumps([model.info["tables"], float(rows.sum(dtype=np.float64))]), flush=True)
time.sleep(600)
"""


def _planned_bytes(artifacts: list[Path], tables: dict[str, Any]) -> int:
    """Return what `cost-model plan` counts for the tables of two models together that have the same table."""
    times = {"fixed_us": 10, "per_row_us": 1, "cv": 0.3, "rows": {"constant": 5}, "slo_p99_ms": 5, "qps": 10}
    tier = {"tier": tables["tier"]}
    models = [
        times | {"name": f"m{i}", "role": "variant" if i else "baseline", "artifact": str(path), "tables": tier}
        for i, path in enumerate(artifacts)
    ]
    made = plan(parse_workload({"machine": {"cores": 4, "memory_gb": 8}, "models": models}))
    assert made.memory is not None
    # Both have the same other files, and only the first one's table counts.
    return made.memory.models["m0"] - made.memory.models["m1"]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_row_model(tmp_path_factory.mktemp("resident"), ROWS)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {"tables": {"tier": "resident", "share_folder": str(tmp_path / "shared")}, "warmup_runs": 1}


def copy_of(artifact: Path, folder: Path) -> Path:
    return Path(shutil.copytree(artifact, folder))


@contextmanager
def other_process(model: Path, config: dict[str, Any]) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(model), json.dumps(config)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        tables, total = json.loads(process.stdout.readline())
        assert total == values_of(ALL).sum(dtype=np.float64)
        yield process, tables
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_resident_model_answers_whatever_becomes_of_its_file(
    artifact: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    copied = copy_of(artifact, tmp_path / "artifact")
    table = table_in(copied)
    with processor.Model(copied, config) as model:
        stop, asked = threading.Event(), 0

        def ask_on() -> None:
            nonlocal asked
            while not stop.is_set():
                assert np.array_equal(ask(model, ALL), values_of(ALL))
                asked += 1

        asking = threading.Thread(target=ask_on)
        asking.start()
        table.chmod(0o600)
        size = table.stat().st_size
        wait_until(lambda: asked > 3, "answers")
        os.truncate(table, 0)
        seen = asked
        wait_until(lambda: asked > seen + 3, "answers after the file was truncated")
        table.write_bytes(b"x" * size)
        table.unlink()
        seen = asked
        wait_until(lambda: asked > seen + 3, "answers after the file was removed")
        stop.set()
        asking.join()
        tables = model.info["tables"]
    assert set(tables) == {"tier", "bytes", "pages", "huge_bytes", "received_bytes"}
    assert tables["tier"] == "resident"
    assert ROWS * DIM * 4 <= tables["bytes"] < ROWS * DIM * 4 + 4096 + 64
    assert tables["pages"] in {"reserved", "transparent", "mixed", "small"}
    assert (tables["huge_bytes"] == 0) == (tables["pages"] == "small")
    assert tables["received_bytes"] == 0


def test_damaged_files_are_refused(artifact: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    damaged, truncated = (copy_of(artifact, tmp_path / name) for name in ("damaged", "truncated"))
    damage(table_in(damaged), 2_000_000)
    with pytest.raises(processor.DataLossError, match=rf"'{table_in(damaged)}': block 30 of 59: wrong checksum"):
        processor.Model(damaged, config)
    table_in(truncated).chmod(0o600)
    os.truncate(table_in(truncated), 2_000_000)
    with pytest.raises(processor.DataLossError, match="2000000 bytes, expected"):
        processor.Model(truncated, config)


def test_processes_share_memory_that_outlives_the_first(artifact: Path, tmp_path: Path, config: dict[str, Any]) -> None:
    with other_process(artifact, config) as (first, tables):
        assert tables["received_bytes"] == 0
        copied = copy_of(artifact, tmp_path / "artifact")
        # Nobody needs the rows of this file.
        damage(table_in(copied), 2_000_000)
        first.send_signal(signal.SIGSTOP)
        with processor.Model(copied, config) as model:
            assert model.info["tables"]["received_bytes"] == tables["bytes"]
            first.kill()
            first.wait()
            assert np.array_equal(ask(model, ALL), values_of(ALL))
            with other_process(artifact, config) as (_, received):
                assert received["received_bytes"] == tables["bytes"]
    assert not list((tmp_path / "shared").glob("*.loading"))
    with processor.Model(artifact, config) as model:
        assert model.info["tables"]["received_bytes"] == 0, "nobody has it any more"


def test_deltas_do_not_reach_the_memory_that_others_share(
    artifact: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    writer = TimelineWriter(tmp_path / "timeline", START, "a test")
    with (
        processor.Model(artifact, config) as other,
        processor.Model(artifact, config | {"follow": str(writer.folder)}) as model,
    ):
        expected = values_of(ALL)
        for epoch in range(1, 13):
            # All rows change in some epochs, so that they are written in place; few in others.
            rows = ALL if epoch % 3 == 0 else ALL[epoch::97]
            expected[rows] = values_of(rows, epoch)
            writer.publish(delta_of(rows, epoch))
            wait_until(lambda: model.info["live"]["epoch"] == epoch, f"epoch {epoch}")  # noqa: B023
            assert np.array_equal(ask(model, ALL), expected)
            assert np.array_equal(ask(other, ALL), values_of(ALL))
        wait_until(lambda: model.info["live"]["overlay_rows"] < ROWS * 9, "rows were written in place")
        with other_process(artifact, config) as (_, tables):
            assert tables["received_bytes"] == tables["bytes"]


def test_versions_of_a_host_share_a_table_and_report_it(
    host: processor.Host, state: StateDirectory, artifact: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    copied = copy_of(artifact, tmp_path / "artifact")
    versions = {"1": {"path": str(artifact), "tables": config["tables"]}}
    versions["2"] = {"path": str(copied), "tables": config["tables"]}
    state.serve(host, {"m": model_of(artifact) | {"versions": versions}})
    answer = tfserving_outputs(host.process("tfserving", tfserving_request({"a": ALL[:100]}, name="m")).data)
    assert np.array_equal(answer["rows"], values_of(ALL[:100]))
    assert len(list((tmp_path / "shared").iterdir())) == 1
    text = host.metrics()
    for name in ("bytes", "huge_bytes", "received_bytes"):
        for version in (1, 2):
            assert f'recprocessor_table_{name}{{model="m",version="{version}"}}' in text
    assert "recprocessor_table_warming" not in text

    def tables_of(number: str) -> Any:
        stats = json.loads(file.read_text()) if file.exists() else {"models": {}}
        return stats["models"].get("m", {"versions": {}})["versions"].get(number, {}).get("tables")

    file = state.path / "hosts" / "host-0" / "stats.json"
    wait_until(lambda: tables_of("1") and tables_of("2"), "statistics of the versions")
    assert tables_of("1")["tier"] == tables_of("2")["tier"] == "resident"
    planned = _planned_bytes([artifact, copied], config["tables"])
    for reported in (tables_of("1")["bytes"], tables_of("2")["bytes"]):
        assert planned == -(-reported // HUGE_PAGE) * HUGE_PAGE, "a plan counts huge pages, and a shared table once"
