# SPDX-License-Identifier: Apache-2.0
"""Faults of the process that talks to the engine are errors that the proxy survives."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from serving_proxy.errors import UnavailableError
from serving_proxy.replicas.driver import Driver


def test_driver_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(UnavailableError, match="its driver cannot be started"):
        asyncio.run(Driver("nothing", {}).call("look"))


def test_driver_whose_connection_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        """A process that has closed its input."""

        returncode = 0

        def __init__(self) -> None:
            self.stdin = self

        def write(self, data: bytes) -> None:
            raise ConnectionResetError("Connection lost")

    async def running(self: Driver) -> Any:
        return Broken()

    monkeypatch.setattr(Driver, "_running", running)
    with pytest.raises(UnavailableError, match="the connection ended, Connection lost"):
        asyncio.run(Driver("nothing", {}).call("look"))
