# SPDX-License-Identifier: Apache-2.0
"""Saves checkpoints between the batches of Keras' `fit`."""

from __future__ import annotations

import time
from typing import Any

import keras


class SaveParts:
    """SaveCheckpoints, for either Keras."""

    def __init__(self, checkpoints: Any, every_steps: int | None = None, every_s: float | None = None) -> None:
        super().__init__()
        if every_steps is None and every_s is None:
            raise ValueError("Checkpoints.callback: neither every_steps nor every_s, expected one of them")
        self._checkpoints = checkpoints
        self._every_steps = every_steps
        self._every_s = every_s
        self._steps = 0
        self._saved_at = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._steps += 1
        due = self._every_steps is not None and self._steps >= self._every_steps
        due = due or (self._every_s is not None and time.monotonic() - self._saved_at >= self._every_s)
        # Training does not wait for a checkpoint that is still being written.
        if due and not self._checkpoints.writing():
            self._save(wait=False)

    def on_train_end(self, logs: Any = None) -> None:
        if self._steps > 0:
            self._save(wait=True)
        self._checkpoints.wait()

    def _save(self, *, wait: bool) -> None:
        self._checkpoints.save(wait=wait)
        self._steps = 0
        self._saved_at = time.monotonic()


class SaveCheckpoints(SaveParts, keras.callbacks.Callback):
    """See `Checkpoints.callback`."""
