# SPDX-License-Identifier: Apache-2.0
"""Provide a small machine with a baseline and variants, and the scenario of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import cost_model
from cost_model.simulation.capacity import scaled_workload
from cost_model.workload import Workload, load_workload, parse_workload

SMALL = {
    "machine": {"cores": 8, "numa_nodes": 2, "memory_bandwidth_gbs_per_node": 50},
    "models": [
        {"name": "base", "role": "baseline", "fixed_us": 100, "per_row_us": 10, "cv": 0.3,
         "rows": {"lognormal": {"mean": 50, "cv": 0.5, "max": 200}}, "slo_p99_ms": 10, "share": 0.6},
        {"group": "variant", "count": 4, "role": "variant", "of": "base", "fixed_us": 100, "per_row_us": [10, 14],
         "cv": 0.3, "rows": "same", "slo_p99_ms": 10, "share": 0.4},
    ],
    "traffic": [
        {"name": "steady", "kind": "poisson", "minutes": 0.5},
        {"name": "bursts", "kind": "mmpp", "minutes": 1,
         "states": [{"level": 0.5, "mean_s": 4}, {"level": 1.5, "mean_s": 2}]},
        {"name": "moving", "kind": "poisson", "minutes": 1,
         "reshare": {"every_s": 10, "groups": ["variant"], "dirichlet_alpha": 0.6}},
        {"name": "slow", "kind": "poisson", "minutes": 2,
         "events": [{"at_s": 10, "model": "variant-2", "service_factor": 20},
                    {"at_s": 40, "model": "variant-2", "service_factor": 1}]},
    ],
    "seeds": [1, 2],
}  # fmt: skip


@pytest.fixture(scope="session")
def small() -> Workload:
    return parse_workload(SMALL)


@pytest.fixture(scope="session")
def box128() -> Workload:
    whole = load_workload(Path(cost_model.__file__).parent / "scenarios" / "box128.yaml")
    return scaled_workload(whole, 0.01)
