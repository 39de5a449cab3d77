# SPDX-License-Identifier: Apache-2.0
"""Check that requests contain each held-out row once, and that ranked requests are filled up."""

from pathlib import Path

import numpy as np
import pytest

from demo import wire, workload
from demo.movielens import MovieLens, Rows, features_of

USERS = {str(user): ("25-34", "F", "writer") for user in range(4)}
ITEMS = {str(item): "Drama|War" for item in range(300)}


@pytest.fixture(scope="module")
def data() -> MovieLens:
    random = np.random.default_rng(3)
    pairs = [(user, item) for user in USERS for item in random.permutation(list(ITEMS))[:120]]
    return MovieLens(
        Rows(features_of(pairs, USERS, ITEMS), random.integers(0, 2, len(pairs)).astype(np.float32)), USERS, ITEMS
    )


def pairs_of(rows: Rows) -> list[tuple[bytes, bytes]]:
    return list(zip(rows.features["user_id"].tolist(), rows.features["item_id"].tolist(), strict=True))


def test_single_rows_are_the_held_out_rows(data: MovieLens, tmp_path: Path) -> None:
    held_out = np.arange(0, 480, 7)
    work = workload.single_rows(data, held_out, tmp_path)
    assert pairs_of(work.rows) == pairs_of(data.rows.take(held_out))
    assert work.held_out.all()
    assert len(work.messages) == len(work.inputs) == len(held_out)
    assert {len(column) for features in work.inputs for column in features.values()} == {1}
    assert wire.read_framed(work.file) == work.messages
    assert wire.read_framed(work.timed_file) == work.messages[: workload.TIMED]


def test_ranked_candidates_hold_every_held_out_row_once(data: MovieLens, tmp_path: Path) -> None:
    held_out = np.arange(0, 360, 5)  # the fourth user has none
    work = workload.ranked_candidates(data, held_out, tmp_path)
    assert len(work.messages) == len(work.inputs) == 3
    assert len(work.rows) == 3 * workload.CANDIDATES
    expected = data.rows.take(held_out)
    found = work.rows.take(np.flatnonzero(work.held_out))
    assert sorted(zip(pairs_of(found), found.clicks.tolist(), strict=True)) == sorted(
        zip(pairs_of(expected), expected.clicks.tolist(), strict=True)
    )


def test_ranked_candidates_are_of_one_user_and_all_different(data: MovieLens, tmp_path: Path) -> None:
    work = workload.ranked_candidates(data, np.arange(0, 360, 5), tmp_path)
    for features in work.inputs:
        assert len(set(features["user_id"].tolist())) == 1
        assert len(set(features["item_id"].tolist())) == workload.CANDIDATES


def test_workloads_are_the_same_in_every_run(data: MovieLens, tmp_path: Path) -> None:
    held_out = np.arange(0, 480, 5)
    first, second = (workload.ranked_candidates(data, held_out, tmp_path).messages for _ in range(2))
    assert first == second
