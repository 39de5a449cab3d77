# SPDX-License-Identifier: Apache-2.0
"""The cases of `bench_graph_tools`: each cuts real exports, checks the answers, and gives figures with targets."""

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
from load_tests.workloads import CACHE, ensure_model

Results = tuple[list[Target], list[dict[str, Any]]]


def cut_into(source: Path, folder: Path, **options: Any) -> dict[str, Any]:
    """Cut a model, keep its report beside the others, and answer the report as JSON."""
    out = folder / "model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = cut(source, out, options=CutOptions(**options)).to_json()
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def saved(report: dict[str, Any]) -> float:
    """Answer how much smaller the cut model is [%]."""
    return 100 * (1 - report["target"]["bytes"] / report["source"]["bytes"])


def exports(folder: Path) -> Results:
    """Cut both of Keras 3's exports without loss."""
    model = ensure_model("keras")
    targets = []
    for name, limit in (("export", 49.0), ("save", 66.0)):
        report = cut_into(model / name, folder / f"keras-{name}")
        what = "model.export()" if name == "export" else "tf.saved_model.save after Adam"
        targets.append(Target(f"Keras 3 {what}: smaller, lossless [%]", saved(report), limit, True))
        assert report["verification"]["passed"]
    return targets, []


def nodes(folder: Path) -> Results:
    """Count what is left of W1."""
    report = cut_into(ensure_model("W1"), folder / "w1")
    left = 100 * report["target"]["nodes"] / report["source"]["nodes"]
    return [Target("W1: nodes left [%]", left, 35.0, False)], []
