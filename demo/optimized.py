# SPDX-License-Identifier: Apache-2.0
"""Optimize the model with graph-tools (smaller tables, fused ops) and serve it with the same C host."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.c_host import CHost
from demo.measure import TOLERANCE, run_tool

#: Largest difference from TensorFlow's scores that the demo accepts, by precision; bf16 keeps eight significant bits,
#: int8 256 steps from the smallest to the largest number of a row.
TOLERANCES = {"fp32": TOLERANCE, "bf16": 1e-2, "int8": 5e-2}


class OptimizedHost(CHost):
    """Run the C host with a model that `graph-tools optimize` wrote."""

    def __init__(self, program: Path, model: Path, config: Mapping[str, Any], output: str, precision: str) -> None:
        super().__init__(program, model, config, output)
        self.name, self.short = f"optimized {precision}, C", f"C, optimized {precision}"
        self.key, self.tolerance = f"optimized_{precision}_c", TOLERANCES[precision]


def words(model: Path, target: Path, precision: str) -> list[str]:
    """Return the arguments of the `graph-tools` command that optimizes a model, including table rows."""
    return ["optimize", str(model), str(target), "--precision", precision, "--embedding-dtype", precision]


def optimize(root: Path, model: Path, target: Path, precision: str) -> None:
    """Run `graph-tools optimize`; `root` is the top of the repository; an existing `target` is replaced.

    Raises
    ------
    ServingError
        If its status is not 0.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "graph_tools", *words(model, target, precision)]
    run_tool("graph-tools optimize", command, cwd=root)
