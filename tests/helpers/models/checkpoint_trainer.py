# SPDX-License-Identifier: Apache-2.0
"""Write full checkpoints of a native TF 1 graph, as `tf.train.Saver` does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from helpers.models.quiet_tensorflow import tensorflow

WEIGHTS = np.array([[1.0], [2.0], [3.0]], np.float32)


def score(x: np.ndarray, step: int) -> np.ndarray:
    """Return the model's outputs at a step: [batch, 3] float32 to [batch, 1] float32, exact for small integers."""
    return x @ WEIGHTS + np.float32(step)


class CheckpointTrainer:
    """x float32 [batch, 3] -> y float32 [batch, 1] = x . [1, 2, 3] + step; `ballast` floats that the graph reads too.

    Attributes
    ----------
    model : Path
        The SavedModel, exported at step 0.
    """

    def __init__(self, root: Path, ballast: int = 16) -> None:
        tf = tensorflow()

        self.model = root / "model"
        self._v1: Any = tf.compat.v1
        graph = self._v1.Graph()
        with graph.as_default():
            x = self._v1.placeholder(self._v1.float32, [None, 3], name="x")
            w = self._v1.get_variable("w", initializer=WEIGHTS, use_resource=True)
            bias = self._v1.get_variable("bias", initializer=np.zeros(1, np.float32), use_resource=True)
            extra = self._v1.get_variable("ballast", initializer=np.zeros(ballast, np.float32), use_resource=True)
            y = self._v1.add(self._v1.matmul(x, w) + bias, 0.0 * extra[0], name="y")
            self._value = self._v1.placeholder(self._v1.float32, [1])
            self._assign = bias.assign(self._value)
            self._saver = self._v1.train.Saver(max_to_keep=None)
            self._session = self._v1.Session(graph=graph)
            self._session.run(self._v1.global_variables_initializer())
            self._v1.saved_model.simple_save(self._session, str(self.model), inputs={"x": x}, outputs={"y": y})

    def save(self, folder: Path, step: int) -> Path:
        """Write model.ckpt-<step> and the file `checkpoint`; return the prefix."""
        folder.mkdir(parents=True, exist_ok=True)
        self._session.run(self._assign, {self._value: [step]})
        path = str(folder / "model.ckpt")
        with self._session.graph.as_default():
            return Path(self._saver.save(self._session, path, global_step=step, write_meta_graph=False))

    def close(self) -> None:
        """Release the variables."""
        self._session.close()


def files_of(prefix: Path) -> list[Path]:
    """Return the data and index files of a checkpoint, the index last."""
    return [*sorted(prefix.parent.glob(prefix.name + ".data-*")), Path(f"{prefix}.index")]


def link_checkpoint(prefix: Path, folder: Path, step: int) -> None:
    """Give a checkpoint a second name, `folder`/model.ckpt-<step>, the index last."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files_of(prefix):
        name = f"model.ckpt-{step}{file.name[len(prefix.name) :]}"
        temporary = folder / f".{name}.tmp"
        try:
            os.link(file, temporary)
        except OSError:
            shutil.copy(file, temporary)
        temporary.rename(folder / name)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n', encoding="utf-8")
