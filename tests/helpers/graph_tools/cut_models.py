# SPDX-License-Identifier: Apache-2.0
"""Provide models to cut, run the command line in this process and in another, and list the content of folders."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import graph_tools
from load_tests.workloads.sparse_exports import Export, deeprec_lookup, deeprec_table

KEYS = np.arange(0, 400, 10, dtype=np.int64)
DIM = 8


def rows(count: int = len(KEYS)) -> np.ndarray:
    """Return rows [count, 8] float32 that int8 cannot represent exactly; every second row is zero."""
    made = np.random.default_rng(7).normal(size=(count, DIM)).astype(np.float32)
    made[::2] = 0
    return made


def build_sparse(path: Path, *, change: dict[str, np.ndarray | None] | None = None, **table: Any) -> Path:
    """Write a DeepRec export: item int64 [batch] -> rows [batch, 8], score [batch, 1]; table `emb` with Adagrad slot.

    `change` replaces or removes tensors of its checkpoint.
    """
    export = Export()
    ids = export.input("item")
    table = {"slots": ["Adagrad"], "keys": KEYS, "rows": rows()} | table
    handle = deeprec_table(export, "emb", table.pop("keys"), table.pop("rows"), **table)
    for name, value in (change or {}).items():
        if value is None:
            del export.saved[name]
        else:
            export.saved[name] = value
    return export.finish(path, [deeprec_lookup(export, handle, ids)], DIM)


def build_served(source: Path, path: Path) -> Path:
    """Copy the string model and add files that servers find next to a model: a warm-up file and a note."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    shutil.copytree(source, path)
    log = prediction_log_pb2.PredictionLog()
    inputs = log.predict_log.request.inputs
    inputs["item"].CopyFrom(tf.make_tensor_proto([b"apple", "m\u00fcsli".encode()]))
    inputs["price"].CopyFrom(tf.make_tensor_proto(np.array([1.5, 2.0], np.float32)))
    (path / "assets.extra" / "more").mkdir(parents=True)
    (path / "assets.extra" / "more" / "note.txt").write_text("read me", encoding="utf-8")
    with tf.io.TFRecordWriter(str(path / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        writer.write(log.SerializeToString())
    return path


def contents(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder by path, including hidden files; folders are listed as such."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


@dataclass
class Ran:
    """Contain the result of a command."""

    code: int
    out: str
    err: str


def run(*arguments: object) -> Ran:
    """Run `graph-tools` in this process."""
    from graph_tools.cli.app import app, load_verbs

    load_verbs()
    found = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="graph-tools")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    # Tables pad their lines with spaces.
    return Ran(found.exit_code, re.sub(r" +$", "", found.stdout, flags=re.MULTILINE), found.stderr)


def report_of(verb: str, *arguments: object) -> dict[str, Any]:
    """Run a verb that succeeds, and return the report that it prints as JSON."""
    found = run(verb, *arguments, "--json")
    assert (found.code, found.err) == (0, "")
    data: dict[str, Any] = json.loads(found.out)
    return data


def command(*arguments: object) -> list[str]:
    """Return the command line that runs `graph-tools` in another process."""
    return [sys.executable, "-m", "graph_tools", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return environment variables for such a process: this checkout's packages, no GPU, plain text."""
    kept = {key: value for key, value in os.environ.items() if key not in {"TF_CPP_MIN_LOG_LEVEL", "FORCE_COLOR"}}
    return kept | {"PYTHONPATH": str(Path(graph_tools.__file__).parent.parent), "CUDA_VISIBLE_DEVICES": ""}
