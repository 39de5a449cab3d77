# SPDX-License-Identifier: Apache-2.0
"""The lease that an actor holds."""

from __future__ import annotations

from typing import Any

from serving_proxy.ray_driver.lease_holder import LeaseHolder


def lease(term: int, renewals: int = 0, holder: str = "a") -> dict[str, Any]:
    return {"term": term, "holder": holder, "url": "http://a", "lasts_s": 5.0, "renewals": renewals, "released": False}


def test_only_one_of_two_writers_gets_the_lease() -> None:
    holder = LeaseHolder()
    stamp, found = holder.read()
    assert found is None
    assert holder.write(stamp, lease(1))[0]
    written, now, found = holder.write(stamp, lease(1, holder="b"))
    assert not written
    assert found == lease(1)
    assert holder.write(now, lease(2, holder="b"))[0]


def test_an_actor_that_has_forgotten_the_lease_waits_for_its_holder() -> None:
    now = 100.0
    holder = LeaseHolder(lambda: now)
    stamp, _ = holder.read()
    now += 4.9
    assert not holder.write(stamp, lease(8, holder="b"))[0]
    # The stamp is that of the actor before.
    assert holder.write("other-7", lease(7, renewals=30))[0]
    now += 0.2
    assert not holder.write(stamp, lease(8, holder="b"))[0]
    assert holder.read()[1] == lease(7, renewals=30)


def test_a_forgotten_lease_may_be_taken_once_it_has_run_out() -> None:
    now = 100.0
    holder = LeaseHolder(lambda: now)
    stamp, _ = holder.read()
    now += 5.1
    assert not holder.write("other-7", lease(8, holder="b"))[0]
    assert holder.write(stamp, lease(8, holder="b"))[0]
