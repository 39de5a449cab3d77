# SPDX-License-Identifier: Apache-2.0
"""Test that cutting a cut model changes nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.tensors import rows_per_chunk
from graph_tools.verbs.cut import cut
from load_tests.workloads._cache import ensure_model
from load_tests.workloads.sparse_exports import Export, deeprec_lookup, deeprec_table, partitioned


def demo(folder: Path) -> Path:
    from demo.model import WideDeep, export
    from demo.movielens import FEATURES

    vocabularies = {name: [b"%s %d" % (name.encode(), index) for index in range(60)] for name in FEATURES}
    (folder / "vocabularies").mkdir(parents=True)
    export(WideDeep(vocabularies, folder / "vocabularies", 0.3, 0), folder / "model")
    return folder / "model"


def deeprec(folder: Path) -> Path:
    """Two parts, of which most rows are zero, with a matrix of default rows."""
    random = np.random.default_rng(0)
    keys = random.permutation(40_000)[:6000].astype(np.int64) * 1_000_003
    rows = random.normal(size=(6000, 8)).astype(np.float32)
    rows[random.random(6000) < 0.9] = 0
    default = random.normal(size=(4, 8)).astype(np.float32)
    export = Export()
    shards = []
    for part in range(2):
        mine, name = part == keys % 2, f"emb/part_{part}"
        handle = deeprec_table(export, name, keys[mine], rows[mine], default=default, partition=(part, 2))
        shards.append(lambda keys, handle=handle: deeprec_lookup(export, handle, keys))
    return export.finish(folder / "model", [partitioned(export, export.input("item"), shards)], 8)


SOURCES: dict[str, Callable[[Path], Path]] = {
    "W1": lambda _: ensure_model("W1"),
    "bags": lambda _: ensure_model("bags"),
    "keras": lambda _: ensure_model("keras") / "export",
    "demo": demo,
    "deeprec": deeprec,
}


def content(model: Model) -> tuple[Counter[object], dict[str, tuple[object, ...]]]:
    """Describe what a signature needs of a graph, without the names of nodes, and what the variables hold."""
    PruneUnreachable().apply(model)
    ops: Counter[object] = Counter()
    for node in model.graph:
        kinds = tuple(model.graph[source.node].op for source in node.inputs)
        value = node.attrs["value"].SerializeToString() if node.op == "Const" else b""
        ops[(node.op, kinds, value)] += 1
    tensors: dict[str, tuple[object, ...]] = {}
    for name, tensor in model.variables.items():
        digest = hashlib.sha256()
        for chunk in tensor.chunks(rows_per_chunk(tensor)):
            digest.update(np.ascontiguousarray(chunk).tobytes())
        tensors[name] = (str(tensor.dtype), tensor.shape, digest.hexdigest())
    return ops, tensors


@pytest.mark.parametrize("row_type", ["fp32", "int8"])
@pytest.mark.parametrize("name", SOURCES)
def test_second_cut_changes_nothing(tmp_path: Path, name: str, row_type: str) -> None:
    source = SOURCES[name](tmp_path / "source")
    cut(source, tmp_path / "once", options=CutOptions(embedding_dtype=row_type), check=False)
    once = content(read_model(tmp_path / "once"))
    # Neither what was asked for already nor another type makes rows of few bits fewer.
    for asked in dict.fromkeys(("fp32", row_type)):
        twice = tmp_path / f"twice_{asked}"
        report = cut(tmp_path / "once", twice, options=CutOptions(embedding_dtype=asked), samples=32)
        assert report.verification is not None
        assert all(output.bit_exact for output in report.verification.outputs)
        assert not report.lossy
        restoring = ("save/", "init_all_tables")
        assert not [node for node in report.removed.nodes if not node.name.startswith(restoring)]
        assert not report.removed.rows
        assert content(read_model(twice)) == once
        assert {pass_.name for pass_ in report.passes if pass_.applied} <= {"prune_unreachable", "shorten_names"}
