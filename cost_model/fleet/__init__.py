# SPDX-License-Identifier: Apache-2.0
"""Place the models of a workload on the machines of a fleet, and simulate what happens to them there."""

from cost_model.fleet.machines import Fleet, FleetMachine, load_fleet, parse_fleet
from cost_model.fleet.placer import SURVIVES, Placement, Previous, Problem, make_problem, place

__all__ = [
    "SURVIVES",
    "Fleet",
    "FleetMachine",
    "Placement",
    "Previous",
    "Problem",
    "load_fleet",
    "make_problem",
    "parse_fleet",
    "place",
]
