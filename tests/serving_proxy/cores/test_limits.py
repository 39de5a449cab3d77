# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from serving_proxy.cores.limits import LIFTED_AFTER_S, Limit, changes, follow, for_each_host


def test_a_limit_is_set_at_once_and_lifted_after_a_while() -> None:
    wanted = {"m/4": Limit(10, "too few")}
    now = follow({}, wanted, 1.0)
    assert now == wanted
    for second in range(1, int(LIFTED_AFTER_S)):
        now = follow(now, {}, 1.0)
        assert now["m/4"].most == 10, second
    assert follow(now, {}, 1.0) == {}
    assert follow(now, wanted, 1.0)["m/4"].unwanted_s == 0.0


def test_a_limit_close_to_the_wanted_one_stays() -> None:
    now = {"m/4": Limit(10, "too few")}
    assert follow(now, {"m/4": Limit(14, "as well")}, 1.0) == now
    assert follow(now, {"m/4": Limit(16, "more")}, 1.0)["m/4"].most == 16
    assert follow(now, {"m/4": Limit(6, "less")}, 1.0)["m/4"].most == 6


def test_hosts_divide_a_limit_and_each_may_have_one() -> None:
    assert for_each_host({"m/4": Limit(10, ""), "m/5": Limit(1, "")}, 4) == {"m/4": 3, "m/5": 1}


def test_every_change_of_a_limit_is_reported_once() -> None:
    before, after = {"m/4": Limit(10, "too few")}, {"m/5": Limit(3, "one core")}
    assert changes(before, after) == {
        "m/4": "the limit is lifted; its cores are enough",
        "m/5": "at most 3 requests at a time; one core",
    }
    assert changes(after, {"m/5": Limit(3, "the same number")}) == {}
