# SPDX-License-Identifier: Apache-2.0
"""Define the output of `cost-model simulate --machines --json`.

docs/schemas/fleet_simulation.schema.json is generated from these classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cost_model.fleet.course import FleetResult, Loss
from cost_model.fleet.placer import Placement
from cost_model.fleet.report import Survive
from cost_model.fleet.rollouts import BadVersion

SCHEMA = "fleet_simulation/1"


@dataclass(frozen=True)
class ModelCourseReport:
    """The requests of models that share cores.

    Attributes
    ----------
    name : str
    requests : float
        Number of requests.
    late : float
        Part of the requests that was late.
    replicas : int
    met : bool
        Whether at most 1 % was late.
    """

    name: str
    requests: float
    late: float
    replicas: int
    met: bool


@dataclass(frozen=True)
class HotSpotReport:
    """A machine that was among the busiest.

    Attributes
    ----------
    machine : str
    busiest : float
        Largest part of the cores of one of its allocations in use; above 1 in overload.
    overloaded_s : float [s]
        Time above 1.
    cause : str
        What happened when it was busiest.
    """

    machine: str
    busiest: float
    overloaded_s: float
    cause: str


@dataclass(frozen=True)
class LossReport:
    """The loss of a machine or zone at the highest level of the traffic.

    Attributes
    ----------
    domain : str
        The machine or zone.
    late : tuple of str
        Models that are late after it.
    busiest : float or None
        How busy the busiest replica is then; None: some model has no replica left.
    """

    domain: str
    late: tuple[str, ...]
    busiest: float | None


@dataclass(frozen=True)
class FleetRunReport:
    """What one kind of traffic did.

    Attributes
    ----------
    traffic : str
        Name of the kind of traffic.
    simulated_s : float [s]
    failures : int
        Number of machines that failed.
    models : tuple of ModelCourseReport
    hot_spots : tuple of HotSpotReport
        The busiest machines, the busiest first.
    losses : tuple of LossReport
        Machines or zones whose loss makes models late.
    worst_loss : LossReport
        The loss after which a replica is busiest.
    utilization : tuple of tuple of float
        Time [s], busy part of all allocated cores, and busy part of the busiest allocation.
    """

    traffic: str
    simulated_s: float
    failures: int
    models: tuple[ModelCourseReport, ...]
    hot_spots: tuple[HotSpotReport, ...]
    losses: tuple[LossReport, ...]
    worst_loss: LossReport
    utilization: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class FleetSimulationReport:
    """Simulation of a fleet, made by `cost-model simulate --machines`.

    Attributes
    ----------
    machines_used : int
    survive : str
        Loss for which the models were placed.
    runs : tuple of FleetRunReport
        One for each kind of traffic.
    bad_versions : tuple of BadVersion
    """

    SCHEMA = SCHEMA

    machines_used: int
    survive: Survive
    runs: tuple[FleetRunReport, ...]
    bad_versions: tuple[BadVersion, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {"schema": SCHEMA, **asdict(self)}


def simulation_report(
    made: Placement, results: Sequence[FleetResult], versions: Sequence[BadVersion]
) -> FleetSimulationReport:
    """Describe the simulations of a placement."""
    return FleetSimulationReport(
        machines_used=int(made.packing.used.sum()),
        survive=made.problem.survival.kind,
        runs=tuple(_run(result) for result in results),
        bad_versions=tuple(versions),
    )


def _run(result: FleetResult) -> FleetRunReport:
    return FleetRunReport(
        traffic=result.traffic,
        simulated_s=result.simulated_s,
        failures=result.failures,
        models=tuple(ModelCourseReport(**asdict(model), met=model.met) for model in result.models),
        hot_spots=tuple(HotSpotReport(**asdict(spot)) for spot in result.hot_spots),
        losses=tuple(_loss(loss) for loss in result.losses),
        worst_loss=_loss(result.worst_loss),
        utilization=tuple(result.utilization),
    )


def _loss(loss: Loss) -> LossReport:
    return LossReport(loss.domain, loss.late, loss.busiest if math.isfinite(loss.busiest) else None)
