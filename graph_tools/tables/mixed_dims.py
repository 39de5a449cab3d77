# SPDX-License-Identifier: Apache-2.0
"""Give rows of a table different widths: many elements to frequent rows, few to rare ones.

Rows are rotated into a basis in which the first elements say most about them, so that rare rows may lack the others.
Source: Ginart et al., "Mixed Dimension Embeddings with Application to Memory-Efficient Recommendation Systems", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.store.row_runs import MOST_NARROW_WIDTHS
from graph_tools.tensors import Array


@dataclass(frozen=True)
class RowWidth:
    """The width of some rows.

    Attributes
    ----------
    dim : int
        Elements of a row.
    rows : int or None
        Number of rows; None: all that are left.
    """

    dim: int
    rows: int | None = None


@dataclass(frozen=True)
class MixedRows:
    """Rows in the order of their widths.

    Attributes
    ----------
    order : ndarray [n] int64
        Number of each row in the table before.
    rows : ndarray [n, dim] float32
        Rotated, with zeros behind what a row keeps.
    basis : ndarray [dim, dim] float32
        `rows @ basis` are nearly the rows before.
    error : float
        Weighted sum of the squared differences, relative to that of the squares of the rows.
    bytes : int
        Of the elements that rows keep.
    """

    order: Array
    rows: Array
    basis: Array
    error: float
    bytes: int


def check_widths(widths: Sequence[RowWidth]) -> None:
    """Raise `UsageError` unless widths descend, and the last one is for all rows that are left."""
    text = ",".join(f"{each.dim}:{each.rows}" if each.rows is not None else f"{each.dim}" for each in widths)
    dims = [each.dim for each in widths]
    wrong = not dims or min(dims) < 1 or any(a <= b for a, b in pairwise(dims))
    wrong |= any((each.rows is None) != (place == len(dims) - 1) for place, each in enumerate(widths))
    if wrong or any(each.rows is not None and each.rows < 1 for each in widths):
        raise UsageError(
            f"--dims {text}: expected widths that descend, each but the last with rows: 64:10000,16:100000,4"
        )
    if len(dims) > MOST_NARROW_WIDTHS:
        raise UsageError(f"--dims {text}: {len(dims)} widths, expected at most {MOST_NARROW_WIDTHS}")


def mix_dims(rows: Array, weights: Array, widths: Sequence[RowWidth]) -> MixedRows:
    """Return rows of these widths, the ones with the most weight widest.

    Parameters
    ----------
    rows : ndarray [n, dim] float32
    weights : ndarray [n]
    widths : sequence of RowWidth

    Notes
    -----
    The basis has the eigenvectors of Σ w_k r_k r_kᵀ, by descending eigenvalue: of all bases, its first d elements lose
    the least of the weighted squares.
    """
    order = np.argsort(-weights, kind="stable")
    mass = (weights[order] / max(float(weights.mean()), 1e-30)).astype(np.float32)[:, None]
    sorted_rows = rows[order]
    moments = (sorted_rows * mass).T.astype(np.float64) @ sorted_rows.astype(np.float64)
    basis = np.linalg.eigh(moments)[1][:, ::-1].T.astype(np.float32)
    mixed = (sorted_rows @ basis.T).astype(np.float32)
    whole = float((mass * np.square(mixed)).sum(dtype=np.float64))
    begin = kept = 0
    lost = 0.0
    for each in widths:
        end = len(rows) if each.rows is None else min(len(rows), begin + each.rows)
        lost += float((mass[begin:end] * np.square(mixed[begin:end, each.dim :])).sum(dtype=np.float64))
        mixed[begin:end, each.dim :] = 0
        kept += (end - begin) * each.dim
        begin = end
    return MixedRows(order, mixed, basis, lost / whole if whole else 0.0, 4 * kept)
