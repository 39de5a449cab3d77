# SPDX-License-Identifier: Apache-2.0
"""Measures of order: rank correlation and the area under the ROC curve."""

from __future__ import annotations

import numpy as np

from graph_tools.tensors import Array


def ranks(values: Array) -> Array:
    """Return ranks [n] float64 from 1 on; equal values share the mean of theirs.

    Not-a-numbers come last, as equal values.
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True, equal_nan=True)
    last = np.cumsum(counts)
    means: Array = (last - (counts - 1) / 2.0)[inverse.reshape(-1)]
    return means


def spearman(a: Array, b: Array) -> float | None:
    """Return Spearman's rank correlation of two arrays [n].

    Returns
    -------
    float or None
        None: fewer than two values, or one of them is constant, so that there is no order.

    Notes
    -----
    Pearson's correlation of the ranks, so that ties count as such.
    """
    if len(a) < 2:
        return None
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x * x).sum() * (y * y).sum()))
    if norm == 0.0:
        return None
    return min(1.0, max(-1.0, float((x * y).sum()) / norm))


def auc(labels: Array, scores: Array) -> float | None:
    """Return the area under the ROC curve.

    Parameters
    ----------
    labels : ndarray [n]
        Not 0 is positive.
    scores : ndarray [n]

    Returns
    -------
    float or None
        None: only one class, or a score that is no number.

    Notes
    -----
    The probability that a positive scores above a negative, ties counting half: the sum of the positives' ranks less
    its smallest possible value, over the number of pairs.
    """
    positive = np.asarray(labels) != 0
    scores = np.asarray(scores, np.float64)
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others or np.isnan(scores).any():
        return None
    total = float(ranks(scores)[positive].sum())
    return (total - count * (count + 1) / 2.0) / (count * others)
