# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from cost_model.fleet import Fleet, parse_fleet
from cost_model.workload import Workload, parse_workload


def model(name: str, qps: float, **more: Any) -> dict[str, Any]:
    """Return a model of a workload file whose requests take a millisecond on average."""
    common = {"role": "baseline", "fixed_us": 1000, "per_row_us": 0, "cv": 0.5, "rows": {"constant": 1}}
    return {"name": name, "qps": qps, "slo_p99_ms": 8, **common, **more}


def workload(*models: dict[str, Any], **more: Any) -> Workload:
    return parse_workload({"models": list(models), **more})


def fleet(*machines: dict[str, Any]) -> Fleet:
    return parse_fleet({"machines": list(machines)})


class Make:
    """Offer the functions above to tests, which cannot import this file."""

    model = staticmethod(model)
    workload = staticmethod(workload)
    fleet = staticmethod(fleet)


@pytest.fixture(scope="session")
def make() -> type[Make]:
    return Make
