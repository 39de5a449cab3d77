# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from serving_proxy.leadership.leases import open_lease


@pytest.mark.parametrize(("lasts_s", "limit_s"), [(1.5, 0.5), (5.0, 5.0 / 3), (60.0, 5.0)])
def test_requests_for_the_lease_of_ray_are_given_up_in_time_for_another_one(lasts_s: float, limit_s: float) -> None:
    lease: Any = open_lease("ray", "file:///unused", ("auto", "fleet"), lasts_s)
    assert lease._limit_s == limit_s
