# SPDX-License-Identifier: Apache-2.0
"""The agent of a replica is started again whatever has ended it."""

from __future__ import annotations

from typing import Any

import pytest

from serving_proxy.ray_driver import actor


def test_agent_that_ends_by_any_error_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor, "_RETRY_S", 0.0)
    replica: Any = actor.Replica.__new__(actor.Replica)
    replica._ended, replica._fault = False, ""
    faults: list[str] = []

    async def run_agent() -> None:
        faults.append(replica._fault)
        replica._ended = len(faults) == 3
        raise KeyError("servers") if len(faults) == 1 else AssertionError

    replica._run_agent = run_agent
    replica._keep_agent()
    assert faults == ["", "agent: 'servers'", "agent: AssertionError"]
