# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from helpers.proxies.host_statistics import stats
from helpers.proxies.lifecycle_records import deployed, host
from serving_proxy.deploy.views import model_view
from serving_proxy.records.hosts import HostSeen


def _shown(counted: dict[str, Any]) -> Any:
    model = deployed(None, 3)
    seen: HostSeen = host({3: "ready"}, stats=counted)
    # As `actual.json` had it when something changed for the last time.
    late = replace(seen.models["ranking"][3], details={"state": "ready", "in_flight": 7})
    return model_view(model, [replace(seen, models={"ranking": {3: late}})]).versions[0].hosts["host-0"]["in_flight"]


@pytest.mark.parametrize("now", [0, 2])
def test_requests_in_flight_are_those_of_the_last_second(now: int) -> None:
    assert _shown(stats({3: {"in_flight": now}})) == now


@pytest.mark.parametrize("counted", [{}, stats({}), stats({3: {}}), {"models": [1]}])
def test_without_statistics_they_are_those_of_the_last_change(counted: dict[str, Any]) -> None:
    assert _shown(counted) == 7
