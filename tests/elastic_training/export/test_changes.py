# SPDX-License-Identifier: Apache-2.0
"""Changes are merged as a dictionary would, and differences lead from one state to the next."""

from __future__ import annotations

import numpy as np
import pytest

from elastic_training.export.changes import Changes


def changes(rows: dict[int, float], gone: set[int], strings: bool = False) -> Changes:
    keys = np.array([_key(key, strings) for key in rows], object if strings else np.int64)
    lost = np.array([_key(key, strings) for key in gone], object if strings else np.int64)
    values = np.array(list(rows.values()), np.float32).reshape(-1, 1) * np.ones(2, np.float32)
    return Changes.of(keys, values, lost)


def _key(key: int, strings: bool) -> int | bytes:
    return b"k%d" % key if strings else key


def as_dict(found: Changes) -> tuple[dict[object, float], set[object]]:
    assert list(found.keys) == sorted(found.keys)
    assert list(found.gone) == sorted(found.gone)
    return dict(zip(found.keys.tolist(), found.rows[:, 0].tolist(), strict=True)), set(found.gone.tolist())


@pytest.mark.parametrize("strings", [False, True])
def test_merging_equals_a_dictionary(strings: bool) -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        rows: dict[int, float] = {}
        gone: set[int] = set()
        merged = changes({}, set(), strings)
        for step in range(3):
            new = {int(key): float(step * 100 + key) for key in random.integers(-4, 9, random.integers(0, 6))}
            lost = {int(key) for key in random.integers(-4, 9, random.integers(0, 5))} - set(new)
            rows = {key: value for key, value in rows.items() if key not in lost} | new
            gone = (gone - set(new)) | lost
            merged = merged.then(changes(new, lost, strings))
        expected = {_key(key, strings): value for key, value in rows.items()}, {_key(key, strings) for key in gone}
        assert as_dict(merged) == expected


def test_difference_leads_to_the_new_state() -> None:
    random = np.random.default_rng(6)
    for _ in range(200):
        old = {int(key): float(random.integers(3)) for key in random.integers(0, 12, 8)}
        new = {int(key): float(random.integers(3)) for key in random.integers(0, 12, 8)}
        difference = changes(new, set()).since(changes(old, set()))
        changed, gone = as_dict(difference)
        assert changed == {key: value for key, value in new.items() if old.get(key) != value}
        assert gone == old.keys() - new.keys()


def test_rows_differ_by_bits() -> None:
    before, now = changes({1: 0.0, 2: 1.0}, set()), changes({1: -0.0, 2: 1.0}, set())
    assert as_dict(now.since(before))[0].keys() == {1}
