# SPDX-License-Identifier: Apache-2.0
"""Test that large constants of frozen graphs stay in their file, and that no step copies them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graph_tools import cut
from graph_tools.errors import UnreadableError
from graph_tools.readers import read_model
from graph_tools.readers.large_constants import LIMIT, split_graph_def
from helpers.graph_tools.cut_models import environment

DIM = 16


def build(path: Path, rows: int) -> np.ndarray:
    """Write a frozen graph ids int64 [batch], x float32 [batch, 4] -> y with a table [rows, 16]; return the table."""
    import tensorflow as tf

    v1 = tf.compat.v1
    table = np.random.default_rng(0).standard_normal((rows, DIM), dtype=np.float32)
    with v1.Graph().as_default() as graph:
        ids = v1.placeholder(tf.int64, [None], name="ids")
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        columns = tf.concat([tf.gather(tf.constant(table, name="table"), ids), x], 1)
        tf.sigmoid(tf.matmul(columns, np.ones((DIM + 4, 1), np.float32)), name="y")
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return table


def test_a_large_constant_is_a_variable_that_is_mapped(tmp_path: Path) -> None:
    table = build(tmp_path / "graph.pb", 100_000)
    rest, found = split_graph_def(tmp_path / "graph.pb")
    assert len(rest) < 100_000
    assert list(found) == ["table/value"]
    assert np.array_equal(found["table/value"].read(), table)
    assert not found["table/value"].read().flags.owndata
    model = read_model(tmp_path / "graph.pb")
    assert model.graph["table"].op == "ReadVariableOp"
    report = cut(tmp_path / "graph.pb", tmp_path / "out")
    assert report.verification is not None
    assert report.verification.bit_exact


def test_a_small_graph_keeps_its_constants(tmp_path: Path) -> None:
    build(tmp_path / "graph.pb", 100)
    assert split_graph_def(tmp_path / "graph.pb") == ((tmp_path / "graph.pb").read_bytes(), {})
    assert read_model(tmp_path / "graph.pb").graph["table"].op == "Const"


@pytest.mark.parametrize("place", [LIMIT // 2, 3])
def test_a_damaged_file_is_named(tmp_path: Path, place: int) -> None:
    build(tmp_path / "graph.pb", 100_000)
    whole = (tmp_path / "graph.pb").read_bytes()
    (tmp_path / "cut.pb").write_bytes(whole[:-LIMIT] if place > 3 else b"\xff" * 20 + whole)
    with pytest.raises(UnreadableError, match=r"cut\.pb: .*expected a GraphDef message"):
        read_model(tmp_path / "cut.pb")


# Cut one model after the other, and print the largest resident memory [kB] of this process and its children so far.
MEASURE = """
import resource, sys
from graph_tools import cut
for source in sys.argv[1:]:
    cut(source, source + ".out", samples=14)
    print(max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""


@pytest.mark.slow
def test_memory_is_a_few_times_the_constant(tmp_path: Path) -> None:
    rows = 1_000_000
    sources = [tmp_path / "small.pb", tmp_path / "large.pb"]
    for source, size in zip(sources, (1000, rows), strict=True):
        build(source, size)
    # A small program between this one and the measured one, because the memory of a child includes its parent's.
    between = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    line = [sys.executable, "-c", between, sys.executable, "-c", MEASURE, *map(str, sources)]
    ended = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=600)
    assert ended.returncode == 0, ended.stderr
    least, most = (int(printed) * 1024 for printed in ended.stdout.split())
    assert most - least < 3.5 * rows * DIM * 4
