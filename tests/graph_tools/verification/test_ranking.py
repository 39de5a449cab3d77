# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_tools.verification.ranking import auc, ranks, spearman


def test_ties_share_the_mean_rank() -> None:
    np.testing.assert_array_equal(ranks(np.array([10, 20, 10, 30])), [1.5, 3, 1.5, 4])
    np.testing.assert_array_equal(ranks(np.array([np.nan, 1, np.nan])), [2.5, 1, 2.5])


def test_spearman_of_orders() -> None:
    a = np.array([1.0, 2, 3, 4])
    assert spearman(a, np.exp(a)) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(np.ones(4), a) is None
    assert spearman(a, np.ones(4)) == 0
    assert spearman(a[:1], a[:1]) is None
    # By hand: ranks 1, 2, 3, 4 and 2, 1, 4, 3 give 1 - 6 * 4 / (4 * 15).
    assert spearman(a, np.array([20.0, 10, 40, 30])) == pytest.approx(0.6)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(rows: list[tuple[bool, int]]) -> None:
    labels = np.array([label for label, _ in rows])
    scores = np.array([score for _, score in rows])
    pairs = [(p > n) + (p == n) / 2 for p in scores[labels] for n in scores[~labels]]
    if pairs:
        assert auc(labels, scores) == pytest.approx(np.mean(pairs))
    else:
        assert auc(labels, scores) is None


def test_auc_of_not_a_number_is_none() -> None:
    assert auc(np.array([0, 1]), np.array([0.0, np.nan])) is None
