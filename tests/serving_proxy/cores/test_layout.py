# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from cost_model.control import Pool
from cost_model.machine import Machine
from serving_proxy.cores.layout import borrows, cores_of, cpus_of, intermediate_layout

BASELINE = Pool("m/1", "baseline", ("m/1",), (0,))
POOL = Pool("pool", "pool", ("m/2", "m/3"), (1,))


def test_siblings_go_with_their_core() -> None:
    cpus = cpus_of(cores_of([BASELINE, POOL], False), Machine.even(2, smt=2))
    assert cpus == {"m/1": "0,2", "m/2": "1,3", "m/3": "1,3"}


def test_nothing_is_pinned_if_there_is_nothing_to_divide() -> None:
    assert cores_of([BASELINE], False) == {}
    assert cores_of([BASELINE, Pool("pool", "pool", ("m/2",), ())], False) == {}
    assert cores_of([], False) == {}


def test_a_pool_without_cores_shares_those_of_other_variants() -> None:
    tight = Pool("tight", "tight", ("m/4",), ())
    assert cores_of([BASELINE, tight, POOL], False)["m/4"] == (1,)


def test_a_baseline_borrows_cores_that_cannot_be_moved() -> None:
    pools = [BASELINE, POOL]
    short, busy, idle = {"m/1": 0.9, "pool": 0.5}, {"m/1": 0.7, "pool": 0.5}, {"m/1": 0.1, "pool": 0.01}
    assert borrows(pools, short, short, False)
    assert borrows(pools, busy, busy, True)
    assert not borrows(pools, busy, busy, False)
    assert borrows(pools, idle, idle, False)
    wide = Pool("pool", "pool", ("m/2",), (1, 2))
    assert not borrows([BASELINE, wide], {"m/1": 0.9}, {"m/1": 0.9}, False)


def test_a_queue_makes_a_baseline_borrow_and_does_not_make_variants_busy() -> None:
    pools = [BASELINE, POOL]
    why = borrows(pools, {"m/1": 0.5, "pool": 0.5}, {"m/1": 1.5, "pool": 0.5}, False)
    assert why is not None
    assert "a demand of 1.5 with waiting requests" in why
    assert borrows(pools, {"m/1": 0.5, "pool": 0.01}, {"m/1": 0.5, "pool": 3.0}, False)


def test_versions_gain_cpus_before_others_lose_them() -> None:
    before, after = {"a": "0-1", "b": "2-3"}, {"a": "0-2", "b": "3"}
    step = intermediate_layout(before, after)
    assert step == {"a": "0-2", "b": "2-3"}
    assert intermediate_layout(step, after) is None
    assert intermediate_layout({}, after) is None
    assert intermediate_layout(before, {"a": "0-1", "b": "3"}) is None
