# SPDX-License-Identifier: Apache-2.0
"""Processes keep copies of the deltas that they have applied, and come back to their epoch without the timeline."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processor
from graph_tools.store.compaction import compact
from graph_tools.store.timeline import segment_name
from graph_tools.store.timeline_writer import TimelineWriter
from helpers.hosts.state_directory import StateDirectory, entry, model_of
from helpers.hosts.tfserving_messages import tfserving_request
from helpers.models.live_models import START, epoch_of, publish
from helpers.system.waiting import wait_until

A = {"a": np.arange(8, dtype=np.int64)}


@pytest.fixture
def writer(tmp_path: Path) -> TimelineWriter:
    return TimelineWriter(tmp_path / "timeline", START, "a test")


@pytest.fixture
def other_file_system() -> Iterator[Path]:
    """A folder to which a file of `tmp_path` cannot be linked."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def load(artifact: Path, writer: TimelineWriter, store: Path, **config: Any) -> processor.Model:
    return processor.Model(
        artifact, {"follow": str(writer.folder), "follow_store": str(store), "warmup_runs": 1} | config
    )


def copies(store: Path) -> list[str]:
    return sorted(path.name for path in store.glob("*/*"))


def wait_for_copies(store: Path, *epochs: tuple[int, int]) -> None:
    names = [segment_name(*both) for both in epochs]
    wait_until(lambda: copies(store) == names, f"{copies(store)}")


def test_copies_are_links_that_variants_share(live_artifact: Path, writer: TimelineWriter, tmp_path: Path) -> None:
    store = tmp_path / "store"
    publish(writer)
    with load(live_artifact, writer, store) as first, load(live_artifact, writer, store) as second:
        last = publish(writer).path
        wait_for_copies(store, (1, 1), (2, 2))
        for model in (first, second):
            wait_until(lambda model=model: model.info["live"]["kept_epoch"] == 2, "the copies")
    (folder,) = store.iterdir()
    assert (folder / last.name).samefile(last)
    shutil.rmtree(writer.folder)
    with load(live_artifact, writer, store) as model:
        assert epoch_of(model.run(A)) == 2
        assert str(writer.folder) in model.info["live"]["error"]


def test_a_compacted_delta_replaces_the_copies_of_its_epochs(
    live_artifact: Path, writer: TimelineWriter, other_file_system: Path
) -> None:
    for _ in range(4):
        publish(writer)
    with load(live_artifact, writer, other_file_system):
        compact(writer.folder, last=3)
        wait_for_copies(other_file_system, (1, 3), (4, 4))
    with load(live_artifact, writer, other_file_system, follow_epoch=4):
        publish(writer)
        compact(writer.folder)
        wait_for_copies(other_file_system, (1, 3), (4, 4))
    shutil.rmtree(writer.folder)
    with load(live_artifact, writer, other_file_system) as model:
        assert epoch_of(model.run(A)) == 4


def test_a_model_is_held_at_an_epoch_of_which_only_copies_are_left(
    live_artifact: Path, writer: TimelineWriter, tmp_path: Path
) -> None:
    for _ in range(4):
        publish(writer)
    with load(live_artifact, writer, tmp_path / "store", follow_epoch=3):
        compact(writer.folder)
    with load(live_artifact, writer, tmp_path / "store", follow_epoch=3) as model:
        assert epoch_of(model.run(A)) == 3
        assert (model.info["live"]["held"], model.info["live"]["error"]) == (True, None)


def test_a_damaged_copy_is_refused_and_repaired(
    live_artifact: Path, writer: TimelineWriter, other_file_system: Path
) -> None:
    for _ in range(3):
        publish(writer)
    with load(live_artifact, writer, other_file_system):
        pass
    (path,) = other_file_system.glob(f"*/{segment_name(2, 2)}")
    damaged = bytearray(path.read_bytes())
    damaged[300] ^= 1
    path.unlink()
    path.write_bytes(damaged)
    elsewhere = writer.folder.rename(writer.folder.with_name("elsewhere"))
    with load(live_artifact, writer, other_file_system) as model:
        assert epoch_of(model.run(A)) == 1
        elsewhere.rename(writer.folder)
        wait_until(lambda: model.info["live"]["epoch"] == 3, "epoch 3")
        wait_until(lambda: path.read_bytes() == (writer.folder / path.name).read_bytes(), "the repaired copy")


def test_a_copy_that_cannot_be_written_changes_nothing_and_is_tried_again(
    live_artifact: Path, writer: TimelineWriter, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.write_text("in the way of the folder\n")
    publish(writer)
    with load(live_artifact, writer, store) as model:
        live = model.info["live"]
        assert epoch_of(model.run(A)) == 1
        assert (live["error"], live["kept_epoch"]) == (None, 0)
        assert str(store) in live["store_error"]
        store.unlink()
        publish(writer)
        wait_until(lambda: model.info["live"]["kept_epoch"] == 2, "the copies")
        assert model.info["live"]["store_error"] is None
    assert copies(store) == [segment_name(1, 1), segment_name(2, 2)]


_FULL = """
import resource, sys, processor
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
with processor.Model(sys.argv[1], {"follow": sys.argv[2], "follow_store": sys.argv[3], "warmup_runs": 1}) as model:
    print(model.info["live"]["epoch"], model.info["live"]["store_error"])
"""


def test_a_full_disk_changes_nothing(live_artifact: Path, writer: TimelineWriter, other_file_system: Path) -> None:
    path = publish(writer).path
    command = [sys.executable, "-c", _FULL, live_artifact, writer.folder, other_file_system]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert text.startswith("1 ")
    assert path.name in text
    assert copies(other_file_system) == []


def test_deltas_of_another_history_replace_the_copies(
    live_artifact: Path, writer: TimelineWriter, tmp_path: Path
) -> None:
    for _ in range(3):
        publish(writer)
    with load(live_artifact, writer, tmp_path / "store"):
        pass
    shutil.rmtree(writer.folder)
    another = TimelineWriter(writer.folder, START)
    publish(another, 7)
    with load(live_artifact, writer, tmp_path / "store") as model:
        assert epoch_of(model.run(A)) == 7
        assert copies(tmp_path / "store") == [segment_name(1, 1)]


_HOST = """
import sys, time, processor
with processor.Host(sys.argv[1], "host-0") as host:
    print("begun", flush=True)
    time.sleep(600)
"""


def test_a_killed_host_comes_back_to_its_epoch_without_the_timeline(
    state: StateDirectory, live_artifact: Path, writer: TimelineWriter
) -> None:
    state.desire({"m": model_of(live_artifact, 1, follow=str(writer.folder))})
    for _ in range(5):
        publish(writer)
    child = subprocess.Popen([sys.executable, "-c", _HOST, str(state.path)], stdout=subprocess.PIPE)
    try:
        stats = state.path / "hosts/host-0/stats.json"
        wait_until(lambda: stats.exists() and '"epoch":5' in stats.read_text().replace(" ", ""), "epoch 5")
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    shutil.rmtree(writer.folder)
    store = state.path / "hosts/host-0/deltas"
    with processor.Host(state.path, "host-0") as host:
        wait_until(lambda: entry(host, "m", 1)["state"] == "ready", "the version")
        assert host.process("tfserving", tfserving_request(A, name="m")).epoch == 5
        wait_until(lambda: str(writer.folder) in (entry(host, "m", 1)["error"] or ""), "the reason")
        assert len(copies(store)) == 5
        state.serve(host, {})
        wait_until(lambda: not list(store.iterdir()), "the copies of an undeployed version are removed")
