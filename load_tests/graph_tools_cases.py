# SPDX-License-Identifier: Apache-2.0
"""Define the cases of `bench_graph_tools`: each cuts real exports, checks outputs, and returns figures with targets."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools import cut, verify
from graph_tools.options import CutOptions
from load_tests._report import Target
from load_tests.workloads import ensure_model

Figures = dict[str, Any]
Results = tuple[list[Target], Figures]


def cut_into(source: Path, folder: Path, **options: Any) -> Figures:
    """Cut a model into `folder/model`, save the report as `folder/report.json`, and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = cut(source, folder / "model", options=CutOptions(**options)).to_json()
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    assert report["verification"]["passed"]
    return report


def is_exact(report: Figures) -> bool:
    """Return whether all outputs of both models are equal bit for bit."""
    return all(output["bit_exact"] for output in report["verification"]["outputs"])


def saved(report: Figures) -> float:
    """Return how much smaller the cut model is [%]."""
    return float(100 * (1 - report["target"]["bytes"] / report["source"]["bytes"]))


def exports(folder: Path) -> Results:
    """Cut both of Keras 3's exports without loss."""
    model, targets = ensure_model("keras"), []
    for name, what, limit in (
        ("export", "model.export()", 49.0),
        ("save", "tf.saved_model.save after Adam", 66.0),
    ):
        report = cut_into(model / name, folder / f"keras-{name}")
        targets.append(Target(f"Keras 3 {what}: smaller, lossless [%]", saved(report), limit, True))
    return targets, {}


def nodes(folder: Path) -> Results:
    """Count the remaining nodes of W1, whose scores must not change in any bit."""
    report = cut_into(ensure_model("W1"), folder / "w1")
    assert is_exact(report), "W1: scores differ"
    left = 100 * report["target"]["nodes"] / report["source"]["nodes"]
    return [Target("W1: nodes left, every score bit for bit [%]", left, 35.0, False)], {}


def zero_rows(folder: Path) -> Results:
    """Cut a table with 93 % zero rows, as each training system exports it; scores equal the system's, bit for bit."""
    from load_tests.workloads.lasso import SYSTEMS, ensure_lasso

    targets = []
    for system in SYSTEMS:
        report = cut_into(ensure_lasso(system), folder / f"lasso-{system}")
        assert is_exact(report), f"{system}: scores differ"
        targets.append(Target(f"93 % zero rows, {system}: smaller, bit-exact [%]", saved(report), 90.0, True))
    report = cut_into(ensure_lasso("deeprec", zero_default=False), folder / "lasso-deeprec-matrix")
    assert is_exact(report), "deeprec with a default matrix: scores differ"
    return targets, {"deeprec with a default matrix that is not zero: smaller [%]": saved(report)}


def speed(folder: Path) -> Results:
    """Time one-row requests in stock TensorFlow before and after."""
    from load_tests.graph_tools_speed import LOADERS, bag_request, one_row_speed

    source = ensure_model("bags")
    cut_into(source, folder / "bags")
    feeds = bag_request(np.random.default_rng(0))
    found = {loader: one_row_speed(source, folder / "bags" / "model", feeds, loader) for loader in LOADERS}
    ratio = found["session"]["ratio"]
    return [Target("20 bags, one row, stock TensorFlow: times as fast", ratio, 2.0, True)], found


def row_types(folder: Path) -> Results:
    """Store the tables of the demo's click model in fewer bits, and compare AUC on held-out ratings."""
    from load_tests.workloads.movielens import auc_of, ensure_click_model

    source, held_out = ensure_click_model()
    before = auc_of(source, held_out)
    targets, figures = [], {"AUC as exported": before}
    for name, ratio, loss in (("bf16", 2.0, 0.0005), ("int8", 3.0, 0.001), ("int4", 5.0, 0.003)):
        report = cut_into(source, folder / f"movielens-{name}", embedding_dtype=name)
        wide = [table for table in report["tables"] if table["dim"] == 16]
        assert wide, "no table of dim 16, expected the users' and the items'"
        smaller = min(table["source_bytes"] / table["bytes"] for table in wide if table["dtype"] == name)
        after = auc_of(folder / f"movielens-{name}" / "model", held_out)
        figures[f"AUC {name}"] = after
        targets.append(Target(f"MovieLens {name}: rows smaller at dim 16 (times)", smaller, ratio, True))
        targets.append(Target(f"MovieLens {name}: AUC changed by", abs(after - before), loss, False))
    return targets, figures


def throughput(folder: Path) -> Results:
    """Convert an fp32 table of 1.2 GB on one core; the graph is small, so that reading and writing dominate."""
    import os

    from load_tests.workloads.big_table import ensure_big_table

    source = ensure_big_table()
    size = sum(file.stat().st_size for file in (source / "variables").iterdir())
    shutil.rmtree(folder / "big", ignore_errors=True)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        rates = []
        for turn in range(3):
            begun = time.monotonic()
            cut(source, folder / "big" / str(turn), check=False)
            rates.append(size / 1e6 / (time.monotonic() - begun))
    finally:
        os.sched_setaffinity(0, allowed)
    verdict = verify(source, folder / "big" / "0", samples=4)
    assert verdict.passed, verdict.reasons
    shutil.rmtree(folder / "big")
    return [Target("fp32 table, read and written on one core [MB/s]", float(np.median(rates)), 300.0, True)], {}


CASES: dict[str, Callable[[Path], Results]] = {
    "exports": exports,
    "nodes": nodes,
    "zero-rows": zero_rows,
    "speed": speed,
    "row-types": row_types,
    "throughput": throughput,
}
