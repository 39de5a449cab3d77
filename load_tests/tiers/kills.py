# SPDX-License-Identifier: Apache-2.0
"""`kills`: processes that are killed while a table with a tier on SSD trains, reclaims and is cut.

Each process restores the last checkpoint, compares every row with what the checkpoint promised, and goes on until it is
killed at a random instant. Batches depend on the number of the step alone, so what a row must have is known.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.tiers.setup import Setup

__all__ = ["DIM", "RATE", "batch_of", "judge", "measure", "wrong_rows"]

DIM, BATCH, KEYS, RATE = 8, 1000, 20_000, 0.5
STEPS_A_CHECKPOINT = 12
# Exit status of a process that finds a row lost or wrong.
_WRONG = 3


def batch_of(step: int) -> NDArray[np.int64]:
    """Return the keys of a step [BATCH] int64."""
    return np.random.default_rng(step).integers(0, KEYS, BATCH)


def wrong_rows(table: Any, steps: int) -> int:
    """Return how many rows are lost or have other weights than SGD with gradients of 1 gives."""
    counts = np.zeros(KEYS, np.int64)
    updates = np.zeros(KEYS, np.int64)
    sums = np.zeros(KEYS, np.float32)
    for step in range(steps):
        keys, occurrences = np.unique(batch_of(step), return_counts=True)
        counts[keys] += occurrences
        updates[keys] += 1
        sums[keys] -= np.float32(RATE) * occurrences.astype(np.float32)
    rows = table.read(np.arange(KEYS))
    weights, found = rows.weights.numpy(), rows.meta.numpy()[:, 1]
    return int(((found != counts) | (weights != sums[:, None]).any(axis=1)).sum())


def _train(folder: Path) -> int:
    """Restore, check, and train until this process is killed."""
    import tensorflow as tf

    import elastic_training as et

    layer = et.HashEmbeddingModule(
        DIM, et.SGD(RATE), embeddings_initializer=et.Zeros(), name="rows", tiers=et.Tiers(1 << 20, folder / "ssd")
    )
    steps = tf.Variable(0, dtype=tf.int64)
    layer(tf.constant([0], tf.int64), training=False)
    checkpoints = et.Checkpoints(folder / "checkpoints", layer=layer, steps=steps, keep=2, full_every=4, copy_ssd=False)
    restored = checkpoints.restore()
    if wrong := wrong_rows(layer.table, int(steps)):
        print(f"{restored}: {wrong} rows of {int(steps)} steps are lost or wrong", file=sys.stderr)
        return _WRONG
    (folder / "checked").write_text(str(int(steps)))
    while True:
        for _ in range(STEPS_A_CHECKPOINT):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(tf.constant(batch_of(int(steps))), training=True))
            tape.gradient(loss, layer.trainable_variables)
            steps.assign_add(1)
        checkpoints.save(wait=False)


def _promised(folder: Path) -> int:
    """Return the number of the newest complete checkpoint."""
    names = sorted(path.name for path in (folder / "checkpoints").glob("checkpoint-????????"))
    return int(names[-1][-8:]) if names else 0


def measure(setup: Setup) -> dict[str, Any]:
    """Kill processes, and count those that find rows lost or wrong."""
    folder = setup.folder / "kills"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kills, wrong, first = 3 if setup.quick else 100, 0, True
    steps = []
    command = [sys.executable, "-m", "load_tests.tiers.kills", str(folder)]
    for _ in range(kills):
        (folder / "checked").unlink(missing_ok=True)
        before = _promised(folder)
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and not (folder / "checked").exists():
                time.sleep(0.01)
            while process.poll() is None and _promised(folder) <= before + (1 if first else 0):
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.5))
            ended = process.poll()
            process.kill()
            errors = process.stderr.read() if process.stderr is not None else ""
        if ended not in (None, _WRONG):
            raise RuntimeError(f"a process ended with {ended}: {errors[-2000:]}")
        wrong += ended == _WRONG
        first = False
        steps.append(int((folder / "checked").read_text()) if (folder / "checked").exists() else -1)
    shutil.rmtree(folder)
    return {"kills": kills, "wrong": wrong, "steps": steps[-1]}


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the target."""
    return [Target("kills after which promised rows are lost or wrong", case["wrong"], 0, at_least=False)]


if __name__ == "__main__":
    sys.exit(_train(Path(sys.argv[1])))
