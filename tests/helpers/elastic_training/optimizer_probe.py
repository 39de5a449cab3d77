# SPDX-License-Identifier: Apache-2.0
"""The C++ optimizers on arrays of rows, without a table, through the library of optimizer_probe.cc."""

from __future__ import annotations

import ctypes
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.elastic_training.optimizer_formulas import Setting

NONZERO, ZERO, RELEASE = 0, 1, 2
_FIELDS = {
    "sgd": (),
    "adagrad": ("initial_accumulator", "epsilon"),
    "rowwise_adagrad": ("initial_accumulator", "epsilon"),
    "adam": ("beta_1", "beta_2", "epsilon"),
    "ftrl": ("initial_accumulator", "learning_rate_power", "l2_shrinkage", "beta"),
}


def config_of(setting: Setting) -> dict[str, Any]:
    """Return the "optimizer" object of a table's JSON."""
    values = dataclasses.asdict(setting)
    names = ("kind", *_FIELDS[setting.kind], "l1", "l2", "l21", "release_after")
    return {name: values[name] for name in names}


class Probe:
    """Rows [n, dim + slots] float32 and the optimizer that steps them.

    Raises
    ------
    ValueError
        If the C++ code refuses the configuration; the message is its own.
    """

    def __init__(self, library: Path, config: dict[str, Any], weights: NDArray[np.float32]) -> None:
        self._library = library = _load(library)
        error = ctypes.create_string_buffer(500)
        self.dim = weights.shape[1]
        self._optimizer = library.optimizer_create(json.dumps(config).encode(), self.dim, error, len(error))
        if not self._optimizer:
            raise ValueError(error.value.decode())
        self.num_slots = int(library.optimizer_slots(self._optimizer))
        self.tells_outcomes = bool(library.optimizer_tells_outcomes(self._optimizer))
        self.rows = np.zeros((len(weights), self.dim + self.num_slots), np.float32)
        self.rows[:, : self.dim] = weights
        for number in range(len(weights)):
            self.init_slots(number)

    def __del__(self) -> None:
        if getattr(self, "_optimizer", None):
            self._library.optimizer_free(self._optimizer)

    def init_slots(self, number: int) -> None:
        """Give a row new slots."""
        slots = self.rows[number, self.dim :]
        self._library.optimizer_init(self._optimizer, ctypes.c_void_p(slots.ctypes.data))

    def step(self, rows: NDArray[np.int64], gradient: NDArray[Any], rate: float, step: int = 1) -> NDArray[np.uint8]:
        """Update distinct rows, and return their outcomes [n]; 255 where none was told."""
        gradient = np.ascontiguousarray(gradient, np.float32)
        outcomes = np.full(len(rows), 255, np.uint8)
        numbers = np.ascontiguousarray(rows, np.int64)
        self._library.optimizer_apply(
            self._optimizer,
            *(ctypes.c_void_p(array.ctypes.data) for array in (self.rows, numbers, gradient)),
            len(rows),
            rate,
            step,
            ctypes.c_void_p(outcomes.ctypes.data),
        )
        return outcomes

    def shall_release(self, number: int, step: int) -> bool:
        """Whether a sweep at `step` releases a row."""
        row = self.rows[number]
        return bool(self._library.optimizer_shall_release(self._optimizer, ctypes.c_void_p(row.ctypes.data), step))

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weights [n, dim], a view."""
        return self.rows[:, : self.dim]

    @property
    def slots(self) -> NDArray[np.float32]:
        """The slots [n, k], a view."""
        return self.rows[:, self.dim :]


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    signatures = {
        "optimizer_create": (pointer, [ctypes.c_char_p, size, ctypes.c_char_p, size]),
        "optimizer_free": (None, [pointer]),
        "optimizer_slots": (size, [pointer]),
        "optimizer_tells_outcomes": (ctypes.c_int, [pointer]),
        "optimizer_init": (None, [pointer, pointer]),
        "optimizer_apply": (None, [pointer] * 4 + [size, ctypes.c_float, ctypes.c_uint64, pointer]),
        "optimizer_shall_release": (ctypes.c_int, [pointer, pointer, ctypes.c_uint64]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
