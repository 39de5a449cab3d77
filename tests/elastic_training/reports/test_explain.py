# SPDX-License-Identifier: Apache-2.0
"""Explanations of single keys, against what sweeps and filters do with them."""

from __future__ import annotations

import datetime
import json
import re
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import elastic_training as et
from elastic_training.reports.sample import EPOCH_S

DAY_S = 86_400


def make_table(key: str = "int64", **settings: Any) -> et.Table:
    return et.Table(et.TableConfig("item", 2, key=key, **settings))


def now_s() -> int:
    return int(time.time()) - EPOCH_S


def test_key_with_a_row() -> None:
    table = make_table("string")
    for _ in range(3):
        table.lookup(["a", "a"], training=True)
    found = et.explain(table, "a")
    assert (found.table, found.key, found.state, found.count) == ("item", "a", "row", 6)
    assert found.last_touch is not None
    assert abs((datetime.datetime.now(datetime.UTC) - found.last_touch).total_seconds()) < 60
    assert found.norm == pytest.approx(np.linalg.norm(table.lookup(["a"])[0]), rel=1e-6)
    assert found.eviction == "the table evicts nothing"
    assert str(found).startswith("table 'item', key 'a': it has a row\nlast met by training at 20")
    assert json.loads(json.dumps(found.to_json()))["last_touch"] == found.last_touch.isoformat()
    assert et.explain(table, b"a") == found
    # Nothing was counted.
    assert table.counts(["a"]).numpy().tolist() == [6]


def test_key_that_is_counted_but_not_admitted() -> None:
    table = make_table(admission=et.CountFilter(5))
    table.lookup([7, 7, 7], training=True)
    found = et.explain(table, 7)
    assert (found.state, found.count, found.norm, found.eviction) == ("candidate", 3, 0.0, "")
    assert found.admission == "it has no row: counted 3 of the 5 occurrences that admit it, 2 missing"
    assert found.missing == 2
    table.lookup([7, 7], training=True)
    assert (et.explain(table, 7).state, et.explain(table, 7).missing) == ("row", 0)
    assert et.explain(table, 8).missing == 5
    poisson = make_table(admission=et.PoissonFilter(5, horizon=1_000_000))
    poisson.lookup([7], training=True)
    text = "it has no row: counted 1 of the 5 occurrences that admit it, 4 missing"
    assert et.explain(poisson, 7).admission == text


@pytest.mark.parametrize(
    "filter_",
    [
        et.CountingFilter(4, expected_keys=1000),
        et.PoissonFilter(4, expected_keys=1000, horizon=10**6),
        et.PoissonFilter(4, horizon=10**6),
        et.CountFilter(4),
    ],
)
def test_missing_occurrences_are_those_that_admit(filter_: Any) -> None:
    table = make_table(admission=filter_)
    for count in range(1, 4):
        table.lookup([7], training=True)
        found = et.explain(table, 7)
        assert (found.state, found.count, found.missing) == ("candidate", count, 4 - count)
        in_sketch = isinstance(filter_, et.CountingFilter) or bool(getattr(filter_, "expected_keys", 0))
        counted = f"counted about {count} in a sketch" if in_sketch else f"counted {count}"
        assert found.admission.startswith(f"it has no row: {counted} of the 4 occurrences that admit it, {4 - count}")
    assert et.explain(table, 7) == found
    table.lookup([7], training=True)
    assert et.explain(table, 7).state == "row"


def test_keys_that_will_probably_reach_the_threshold() -> None:
    """Most keys that occur twice occur often, and the filter learns that."""
    table = make_table(admission=et.PoissonFilter(5))
    random = np.random.default_rng(0)
    for batch in range(100):
        often = random.integers(0, 500, 200)
        table.lookup(np.concatenate([often, np.arange(batch * 50, batch * 50 + 50) + 10**6]), training=True)
    key = 999
    table.lookup([key], training=True)
    found = et.explain(table, key)
    assert 0 < found.missing < 4
    assert f"since at {1 + found.missing} it will probably reach 5" in found.admission
    for _ in range(found.missing):
        assert et.explain(table, key).state == "candidate"
        table.lookup([key], training=True)
    assert et.explain(table, key).state == "row"
    published = make_table(admission=et.PoissonFilter(5, prior="none", horizon=1000))
    published.lookup([1] * 400, training=True)
    published.lookup([2], training=True)
    drawn = et.explain(published, 2)
    assert (drawn.state, drawn.missing) == ("candidate", 4)
    assert drawn.admission.endswith("; the next one admits it with probability 0.57")


def test_key_that_the_table_does_not_know() -> None:
    table = make_table()
    assert et.explain(table, 7).admission == "it has no row: training has not met it"
    table.lookup([7], training=True)
    table.evict([7])
    found = et.explain(table, 7)
    assert (found.state, found.count, found.last_touch) == ("absent", 0, None)
    assert "the table has evicted 1 rows, perhaps this one" in found.admission
    sketch = make_table(admission=et.CountingFilter(3, expected_keys=100))
    sketch.lookup([7], training=True)
    text = "training has not met it, or its count has aged or made room for another; 3 occurrences admit it"
    assert text in et.explain(sketch, 8).admission
    assert et.explain(sketch, 8).state == "absent"


def test_released_row() -> None:
    table = make_table(optimizer=et.GroupAdagrad(0.1, l21=0.1, release_after=10))
    table.insert([7], weights=[[0.0, 0.0]], meta=[[now_s(), 4, 2]])
    found = et.explain(table, 7)
    assert (found.state, found.norm) == ("released", 0.0)
    assert "group lasso gave their memory back" in found.admission


@pytest.mark.parametrize(
    ("strategy", "count", "idle_days", "weights", "text"),
    [
        (et.Ttl(days=10), 5, 12, 1, "not met for 12.0 days, kept for 10.0 days"),
        (et.Ttl(days=1 / 1440), 5, 0.125, 1, "not met for 3.0 hours, kept for 1.0 minutes"),
        (et.Ttl(days=1e-5), 5, 0.125, 1, "not met for 3.0 hours, kept for 0.9 s"),
        (et.Ttl(days=10), 5, 7, 1, "evicted in 3.0 days"),
        (et.CountDecay(half_life_days=2, minimum=1), 6, 6, 1, "its decayed count is 0.75, below 1"),
        (et.CountDecay(half_life_days=2, minimum=1), 8, 4, 1, "its decayed count is 2; evicted in 2.0 days"),
        (et.L2Norm(minimum=1), 1, 0, 0.5, "its norm is 0.707, below 1"),
        (et.L2Norm(minimum=1), 1, 0, 1, "kept while its norm, 1.41"),
        (et.Score(count=1, norm=1, half_life_days=1, minimum=2), 2, 1, 0.5, "its score is 1.4, below 2"),
        (et.Score(count=1, norm=1, half_life_days=1, minimum=1), 2, 1, 0.5, "kept while its score, 1.4"),
    ],
)
def test_explanation_is_what_a_sweep_does(
    strategy: Any, count: int, idle_days: float, weights: float, text: str
) -> None:
    table = make_table(eviction=strategy)
    table.insert([7], weights=[[weights, weights]], meta=[[now_s() - int(idle_days * DAY_S), count, 1]])
    found = et.explain(table, 7)
    assert text in found.eviction
    assert table.evict() == int("the next sweep evicts it" in found.eviction)


def test_limits_are_named() -> None:
    table = make_table(eviction=et.Ttl(days=1, triggers=(et.Rows(1_000),)))
    table.lookup([7], training=True)
    assert et.explain(table, 7).eviction.endswith("; above 1,000 rows, those with the lowest values leave too")


def test_layers_and_unsigned_keys() -> None:
    layer = et.HashEmbedding(2)
    layer(tf.constant([2**64 - 3, 5], tf.uint64), training=True)
    assert (et.explain(layer, 2**64 - 3).key, et.explain(layer, 2**64 - 3).state) == (-3, "row")
    assert et.explain(layer, tf.constant(5)) == et.explain(layer, np.array(5)) == et.explain(layer, 5)


@pytest.mark.parametrize("key", ["7", 2**64, 1.0, True])
def test_keys_of_another_kind(key: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"explain: table 'item': key {key!r}, expected a 64-bit integer")):
        et.explain(make_table(), key)


def test_layers_without_one_table() -> None:
    with pytest.raises(ValueError, match="HashEmbedding has no table"):
        et.explain(et.HashEmbedding(2), 1)
    two = et.FeatureEmbeddings({"a": et.Feature(2), "b": et.Feature(2)})
    two({"a": tf.constant([1]), "b": tf.constant([1])})
    with pytest.raises(ValueError, match=r"has 2 tables \('a', 'b'\), .*: explain\(layer.tables\['a'\], key\)"):
        et.explain(two, 1)
