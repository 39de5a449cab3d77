# SPDX-License-Identifier: Apache-2.0
"""Count the locks, allocations and system calls of a request in steady state."""

from __future__ import annotations

import collections
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools import optimize
from graph_tools.readers import read_model
from graph_tools.tensors import ArrayTensor
from graph_tools.writer import write_saved_model
from helpers.hosts.contract_messages import encode
from helpers.models.idiom_models import export_function
from helpers.oracles.live_graphs import tower_graph
from helpers.system.programs import require, run_ok

SOURCE = Path(__file__).parent / "request_path" / "count_calls.cc"
REQUESTS = 200

#: Counts in a process of its own, since it replaces functions of the C library.
PROGRAM = """
import ctypes, json, os, sys
from processor import Model
counter = ctypes.CDLL(sys.argv[1])
config = {"session_num": 1, "intra_op_parallelism_threads": 1} | json.loads(sys.argv[6])
model = Model(sys.argv[2], config)
request = open(sys.argv[3], "rb").read()
for _ in range(1000):
    model.process(request)
assert counter.count_calls_begin() == 0, "system calls cannot be trapped"
for _ in range(int(sys.argv[5])):
    model.process(request)
counter.count_calls_end(sys.argv[4].encode())
os._exit(0)  # the thread cannot start processes any more
"""


@dataclass(frozen=True)
class Calls:
    """Calls per request: of a kind ("lock", "allocation", "system call"), by the name of the library that called."""

    counts: dict[tuple[str, str], float]

    def of(self, kind: str, library: str) -> float:
        return sum(
            count for (of_kind, name), count in self.counts.items() if of_kind == kind and name.startswith(library)
        )


def export_model(folder: Path) -> Path:
    """x float32 [batch, 3] -> y float32 [batch, 3], by kernels that do not allocate more than their outputs."""
    module = tf.Module()
    module.serve = tf.function(lambda x: {"y": tf.nn.relu(x * 2.0 + 1.0)})
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve.get_concrete_function(spec)})
    return folder


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the library that counts."""
    require("g++")
    counter = tmp_path_factory.mktemp("counter") / "libcount_calls.so"
    run_ok(["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", SOURCE, "-o", counter, "-ldl"])
    return counter


@pytest.fixture(scope="module")
def calls(counter: Path, tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """Count the calls of requests that run on the caller's thread."""
    folder = tmp_path_factory.mktemp("request_path")
    return count(counter, export_model(folder / "model"), {"x": np.ones((2, 3), np.float32)}, folder)


def count(
    counter: Path, model: Path, inputs: dict[str, Any], folder: Path, config: dict[str, Any] | None = None
) -> Calls:
    """Count the calls of requests."""
    request, found = folder / "request", folder / "calls"
    request.write_bytes(encode(inputs))
    command = [sys.executable, "-c", PROGRAM, counter, model, request, found, REQUESTS, json.dumps(config or {})]
    run_ok(command, env={**os.environ, "LD_PRELOAD": str(counter), "TF_CPP_MIN_LOG_LEVEL": "3"})
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    for line in found.read_text().splitlines():
        kind, count, _, library, _, _ = line.split("\t")
        counts[kind, Path(library).name] += int(count)
    return Calls({key: count / REQUESTS for key, count in counts.items()})


def test_counter_sees_the_caller(calls: Calls) -> None:
    """The caller's library allocates, so zeros elsewhere are not zeros of a counter that does not work."""
    assert calls.of("lock", "libpython") + calls.of("allocation", "_cffi_backend") >= 1


def test_requests_allocate_nothing_but_the_answer(calls: Calls) -> None:
    assert calls.of("allocation", "libprocessor") == 1


def test_requests_make_no_system_call(calls: Calls) -> None:
    assert calls.of("system call", "libprocessor") == 0
    assert calls.of("system call", "libtensorflow") == 0


def test_requests_take_only_locks_of_their_own(calls: Calls) -> None:
    """These are of the request's cancellation (two) and of its thread's part of the deadline watch (two)."""
    assert calls.of("lock", "libprocessor") <= 4


def test_tensorflow_session_is_not_on_the_request_path(calls: Calls) -> None:
    """Kernels allocate their outputs; a run through the session would copy names and make a rendezvous as well."""
    assert calls.of("allocation", "libtensorflow") <= 8
    assert calls.of("lock", "libtensorflow") == 0


def test_views_cost_no_lock_and_no_allocation(counter: Path, tmp_path: Path) -> None:
    graph = tower_graph(tmp_path)
    found = []
    for live in (False, True):
        model = graph.save(tmp_path / f"live_{live}", live=live, applies=False)
        found.append(count(counter, model, {"feature0": np.array([2, 4])}, tmp_path))
    graph.close()
    without, with_view = found
    for library in ("libprocessor", "libtensorflow"):
        assert with_view.of("lock", library) == without.of("lock", library)
        assert with_view.of("system call", library) == 0
    assert with_view.of("allocation", "libprocessor") == without.of("allocation", "libprocessor")


def test_codes_of_narrow_rows_are_widened_without_allocating(counter: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    rows[100:, 4:] = 0
    table = tf.Variable(rows, name="table")
    names = ["a", "b", "c"]
    specs = [tf.TensorSpec([None], tf.int64, name=name) for name in names]

    def serve(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"rows": tf.nn.relu(tf.concat([tf.gather(table, each) for each in ids], 1))}

    export = export_function(tmp_path / "export", serve, specs, table=table)
    optimize(export, tmp_path / "fp32", precision="fp32", accept_weak_proof=True)
    model = read_model(tmp_path / "fp32")
    for node, spec in model.embedding_tables.items():
        model.embedding_tables[node] = replace(spec, rows=ArrayTensor(rows), row_type="int8", file=None)
    write_saved_model(model, tmp_path / "int8")
    inputs = {name: np.arange(place, 1000, 90) for place, name in enumerate(names)}
    config = {"tables": {"tier": "tiered", "memory": "100KB"}}
    wide, codes = (count(counter, tmp_path / name, inputs, tmp_path, config) for name in ("fp32", "int8"))
    assert codes.of("allocation", "libprocessor") == wide.of("allocation", "libprocessor")
