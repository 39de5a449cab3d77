# SPDX-License-Identifier: Apache-2.0
"""Callers that copy weights as a list of arrays, in which rows of tables are not.

Keras has no place for rows in `get_weights` and `set_weights`: the list has one array for each variable, of a shape
that stays.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

_HINT = (
    "expected restore_best_weights=False, with ModelCheckpoint('best.keras', save_best_only=True) beside it "
    "and keras.saving.load_model('best.keras') after training"
)


def check(owner: str) -> None:
    """Look whether weights of a layer are asked for to be copied.

    Parameters
    ----------
    owner : str
        What messages call the layer.

    Raises
    ------
    ValueError
        If EarlyStopping wants to restore the best weights: it would mix them with the last rows.
    """
    frame: FrameType | None = sys._getframe(2)
    sets = False
    while frame is not None:
        name = frame.f_code.co_name
        sets = sets or name == "set_weights"
        callback: Any = frame.f_locals.get("self") if name in ("on_epoch_end", "on_train_end") else None
        if type(callback).__name__ == "EarlyStopping" and getattr(callback, "restore_best_weights", False):
            raise ValueError(f"{owner}: EarlyStopping(restore_best_weights=True) does not restore rows, {_HINT}")
        frame = frame.f_back
    if sets:
        what = f"{owner}: set_weights leaves the rows of tables as they are"
        warnings.warn(f"{what}; save and load the model, or use et.Checkpoints, to copy them", stacklevel=3)


class WeightsWithoutRows:
    """A mixin of layers of either Keras: weights that are copied without rows are an error or a warning."""

    _group: Any

    @property
    def weights(self) -> list[Any]:
        """The weights of the layer: its trap."""
        group = getattr(self, "_group", None)
        if group is not None:
            check(group.owner)
        found: list[Any] = super().weights  # type: ignore[misc]
        return found
