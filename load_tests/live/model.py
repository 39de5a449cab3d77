# SPDX-License-Identifier: Apache-2.0
"""Export live models whose answers show their epoch, and the deltas of their epochs.

    python -m load_tests.live.model FOLDER --keys 256 --features 2     # needs tensorflow or tensorflow-cpu 2.21

Input `a` int64 [batch, features] are keys. At epoch e, `rows` (the rows of the first `shown` features) is e in every
element if these rows change in each epoch. The dense layers, whose weights change in each epoch, read the same rows:
y = relu(x · kernel + bias) · last = 3 · e. A kernel and a bias of different epochs give another number.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from graph_tools.store.delta import Delta, TableDelta, no_keys
from graph_tools.store.lineage import write_lineage
from graph_tools.store.timeline import Position
from graph_tools.tensors import Array, ArrayTensor
from load_tests._programs import ROOT

__all__ = ["HOT", "SCALE", "TABLE", "Shape", "delta_of", "ensure_artifact", "variables_at"]

TABLE = "items"
#: y divided by the epoch.
SCALE = 3
#: Keys of features that are shown where not all are: their rows are those that change in each epoch.
HOT = 1000
_LINEAGE = b"load_tests/live\0"


@dataclass(frozen=True)
class Shape:
    """Describe a model.

    Attributes
    ----------
    keys : int
        The table has the keys 0 to `keys` - 1.
    dim : int
        Elements of a row. `dim` · `shown` and `hidden` are powers of two, so that all sums are exact.
    features : int
        Lookups of a request's row.
    shown : int
        Rows of the first features are in the answer, and the dense layers count them only.
    hidden : int
        Width of the hidden layer.
    """

    keys: int = 256
    dim: int = 4
    features: int = 2
    shown: int = 2
    hidden: int = 8

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return "-".join(str(value) for value in asdict(self).values())


def variables_at(shape: Shape, epoch: int) -> dict[str, Array]:
    """Return the values of the dense variables at an epoch."""
    width = shape.dim * shape.shown
    odd = epoch % 2
    kernel = np.zeros((shape.dim * shape.features, shape.hidden), np.float32)
    kernel[:width] = (1 + odd) / width
    return {"kernel": kernel, "bias": np.full(shape.hidden, epoch * (SCALE - 1 - odd), np.float32)}


def delta_of(
    shape: Shape,
    epoch: int,
    keys: Array,
    deleted: Array | None = None,
    variables: Mapping[str, Array] | None = None,
    value: float | None = None,
) -> Delta:
    """Return the changes of an epoch.

    Parameters
    ----------
    shape : Shape
    epoch : int
    keys : ndarray [n] int64
        Ascending; their rows become the number of the epoch, or `value`.
    deleted : ndarray [m] int64, optional
        Ascending.
    variables : mapping, optional
        Other variables than those of the epoch.
    value : float, optional
    """
    rows = np.full((len(keys), shape.dim), epoch if value is None else value, np.float32)
    gone = no_keys("int64") if deleted is None else ArrayTensor(deleted)
    table = TableDelta(TABLE, "int64", shape.dim, ArrayTensor(keys), ArrayTensor(rows), gone)
    found = variables_at(shape, epoch) if variables is None else variables
    return Delta((table,), {name: ArrayTensor(array) for name, array in found.items()})


def ensure_artifact(shape: Shape, cache: Path) -> Path:
    """Return the artifact of a model; export and optimize it in a process of its own if the cache does not have it.

    The export is in the folder `export` beside it.
    """
    folder = cache / shape.name
    if not folder.is_dir():
        scratch = folder.with_suffix(".part")
        shutil.rmtree(scratch, ignore_errors=True)
        options = [text for name, value in asdict(shape).items() for text in (f"--{name}", str(value))]
        subprocess.run([sys.executable, "-m", "load_tests.live.model", str(scratch), *options], check=True, cwd=ROOT)
        scratch.rename(folder)
    return folder / "artifact"


def _export(folder: Path, shape: Shape) -> None:
    from load_tests.workloads.sparse_exports import Export, tfra_lookup, tfra_table

    export = Export()
    keys = np.arange(shape.keys, dtype=np.int64)
    # Rows of features that are not shown are like those of a real model; shown rows are 0, the number of the epoch.
    rows = np.zeros((shape.keys, shape.dim), np.float32)
    if shape.shown < shape.features:
        rows[HOT:] = np.random.default_rng(0).standard_normal((shape.keys - HOT, shape.dim), np.float32)
    table = tfra_table(export, TABLE, keys, rows)
    ids = export.input("a", "int64", (None, shape.features))
    found = tfra_lookup(export, table, ids, export.const(np.zeros(shape.dim, np.float32)))
    width = np.array([-1, shape.features * shape.dim], np.int32)
    x = export.node("Reshape", [found, export.const(width)], T="float32", Tshape="int32")
    values = {name: export.variable(name, value) for name, value in variables_at(shape, 0).items()}
    last = export.variable("last", np.full((shape.hidden, 1), 1 / shape.hidden, np.float32))
    product = export.node("MatMul", [x, values["kernel"]], T="float32")
    hidden = export.node("Relu", [export.node("BiasAdd", [product, values["bias"]], T="float32")], T="float32")
    export.node("MatMul", [hidden, last], "y", T="float32")
    begin, size = np.array([0, 0], np.int32), np.array([-1, shape.shown * shape.dim], np.int32)
    export.node("Slice", [x, export.const(begin), export.const(size)], "rows", T="float32", Index="int32")
    export.write(folder, {"rows": "rows", "y": "y"})


def main(arguments: list[str] | None = None) -> None:
    """Write `export` and `artifact` into a folder."""
    parser = argparse.ArgumentParser(description="Export a live model.")
    parser.add_argument("folder", type=Path)
    for field in fields(Shape):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    options = vars(parser.parse_args(arguments))
    folder = options.pop("folder")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from graph_tools import optimize

    _export(folder / "export", Shape(**options))
    write_lineage(folder / "export", Position.start(_LINEAGE))
    optimize(folder / "export", folder / "artifact", live=True, precision="fp32", accept_weak_proof=True)


if __name__ == "__main__":
    main()
