# SPDX-License-Identifier: Apache-2.0
"""Define the records of a TensorNet sparse table, which depend on the optimizer and on the release.

Every layout is a packed structured dtype with `sign` (the key) and the weights of the row; `show` counts how often the
key was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graph_tools.tensors import Array

OPTIMIZERS = ("AdaGrad", "Adam", "Ftrl")

_Field = tuple[str, str] | tuple[str, str, tuple[int, ...]]


def _adagrad(dim: int, *tail: _Field) -> np.dtype[Any]:
    return np.dtype([("sign", "<u8"), ("dim", "<i4"), ("w", "<f4", (dim,)), ("g2sum", "<f4"), *tail])


_SHOW: _Field = ("show", "<f4")
_DAYS: _Field = ("no_show_days", "<i4")
_CLICK: _Field = ("click", "<f4")
_VERSION: _Field = ("version", "<f4")


def text_layout(optimizer: str, dim: int, columns: int, version_first: bool) -> np.dtype[Any] | None:
    """Return the columns of a text block, or None if no release wrote this number of columns.

    Parameters
    ----------
    version_first : bool
        Of the two orders with dim + 5 columns, use the older one: g2sum, version, show.
    """
    if optimizer == "AdaGrad":
        tails: dict[int, tuple[_Field, ...]] = {
            4: (_SHOW,),
            5: (_VERSION, _SHOW) if version_first else (_SHOW, _DAYS),
            6: (_SHOW, _DAYS, _CLICK),
        }
        return _adagrad(dim, *tails[columns - dim]) if columns - dim in tails else None
    if columns == 2 + 3 * dim:
        # Each weight is followed by its two moments: w0 m0 v0 w1 m1 v1 ...
        return np.dtype([("sign", "<u8"), ("moments", "<f4", (dim, 3)), _SHOW])
    return None


def binary_layouts(dim: int) -> dict[tuple[str, bool], np.dtype[Any]]:
    """Return the layouts of a binary record by (optimizer, True if it counts clicks)."""
    moments = np.dtype([("sign", "<u8"), ("w", "<f4", (dim,)), ("moments", "<f4", (2 * dim,)), _SHOW])
    head: list[_Field] = [("sign", "<u8"), ("w", "<f4", (dim,)), ("g2sum", "<f4"), _SHOW, _DAYS]
    return {
        ("AdaGrad", False): np.dtype(head),
        ("AdaGrad", True): np.dtype([*head, _CLICK]),
        ("Adam", False): moments,
        ("Ftrl", False): moments,
    }


def is_plausible(records: Array) -> bool:
    """Return whether records may have their layout: counts, days and sums of squares have possible values."""
    names = records.dtype.names or ()
    good = np.isfinite(records["show"]) & (records["show"] >= 0)
    # A small integer that is read as a float is a denormal number; decayed counts are never that small.
    good &= (records["show"] == 0) | (records["show"] > 1e-30)
    if "no_show_days" in names:
        good &= (records["no_show_days"] >= 0) & (records["no_show_days"] < 100_000)
    if "click" in names:
        good &= (records["click"] == 0) | ((records["click"] > 1e-30) & (records["click"] < 1e12))
    if "g2sum" in names:
        good &= np.isfinite(records["g2sum"]) & (records["g2sum"] >= 0)
    return bool(good.all())


def weights(records: Array) -> Array:
    """Return the rows [n, dim] float32."""
    if "w" in (records.dtype.names or ()):
        return records["w"]
    return records["moments"][:, :, 0]


def weights_with_cvm(records: Array) -> Array:
    """Return the rows that a table with `use_cvm` serves [n, dim + 2]: weights, show, log of clicks per show.

    Notes
    -----
    The last column is log(click + 1) - log(show + 1), which the system computes when it loads a table.
    """
    show, click = records["show"], records["click"]
    ratio = np.log(click + np.float32(1)) - np.log(show + np.float32(1))
    return np.concatenate([weights(records), show[:, None], ratio[:, None]], axis=1)


Column = Callable[[Array], Array]


def dropped_bytes(layout: np.dtype[Any], dim: int, served: int) -> dict[str, int]:
    """Return the bytes of a record that serving does not need, by field.

    Parameters
    ----------
    served : int
        Length of the served row; larger than `dim` if counts are part of it.
    """
    sizes = {}
    for name in layout.names or ():
        size = layout[name].itemsize
        if name == "moments":
            size = 8 * dim
        if name in ("sign", "w", "dim", "show") or (name == "click" and served > dim):
            continue
        sizes[name] = size
    return sizes
