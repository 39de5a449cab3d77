# SPDX-License-Identifier: Apache-2.0
"""Measure how two rankings agree: rank correlation and the area under the ROC curve."""

from __future__ import annotations

import numpy as np

from graph_tools.tensors import Array


def ranks(values: Array) -> Array:
    """Return ranks [n] float64 that begin with 1; equal values share the mean of their ranks.

    NaN values are last and count as equal.
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
        None: fewer than two values, or `a` is constant, so that there is no order. 0: only `b` is constant.

    Notes
    -----
    Pearson's correlation of the ranks, so that ties count as ties.
    """
    if len(a) < 2:
        return None
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    if not x.any():
        return None
    if not y.any():
        return 0.0
    norm = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return min(1.0, max(-1.0, float((x * y).sum()) / norm))


def auc(labels: Array, scores: Array) -> float | None:
    """Return the area under the ROC curve.

    Parameters
    ----------
    labels : ndarray [n]
        Any label other than 0 is positive.
    scores : ndarray [n]

    Returns
    -------
    float or None
        None: there is only one class, or a score is NaN.

    Notes
    -----
    The probability that a positive has a higher score than a negative; ties count half. It is the sum of the positives'
    ranks minus its smallest possible value, divided by the number of pairs.
    """
    positive = np.asarray(labels) != 0
    scores = np.asarray(scores, np.float64)
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others or np.isnan(scores).any():
        return None
    total = float(ranks(scores)[positive].sum())
    return (total - count * (count + 1) / 2.0) / (count * others)
