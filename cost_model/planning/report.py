# SPDX-License-Identifier: Apache-2.0
"""Define the output of `cost-model plan --json`; docs/schemas/plan.schema.json is generated from these dataclasses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from cost_model.memory import MemoryUse
from cost_model.planning.addition import Addition
from cost_model.planning.allocation import Allocation, Plan
from cost_model.planning.explain import Explanation
from cost_model.queueing import Prediction

Late = Annotated[float, {"type": "number", "minimum": 0, "maximum": 1.000001}]
Verdict = Annotated[str, {"enum": ["fits", "needs_cores", "does_not_fit"]}]
_OPTIONAL = {"optional": True}


@dataclass(frozen=True)
class MachineReport:
    """Number of physical cores and NUMA nodes, and the largest number of CPUs per core."""

    cores: int
    nodes: int
    smt: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class InterferenceReport:
    """Slow-downs of requests by other models; see `Interference`."""

    switch: float
    shared_cache: float
    bandwidth: float


@dataclass(frozen=True)
class MemoryReport:
    """Memory that the models take on each host.

    Attributes
    ----------
    limit_bytes : int or None
        What hosts use of the machine's memory; None: it is not known.
    models : dict of str to int [bytes]
        What each model adds to those before it; tables with equal content count once.
    """

    limit_bytes: int | None
    used_bytes: int
    models: dict[str, int]


@dataclass(frozen=True)
class PredictionReport:
    """Predicted values of a model.

    Attributes
    ----------
    qps : float [requests/s]
    mean_wait_ms, p50_ms, p99_ms : float [ms] or None
        None: overload.
    late : float
        Part of its requests that take longer than its SLO.
    """

    qps: float
    utilisation: float
    mean_wait_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    late: Late
    slo_p99_ms: float
    meets: bool


@dataclass(frozen=True)
class AllocationReport:
    """Cores, and the models that run on them.

    Attributes
    ----------
    cores : tuple of int
        Indices into the machine's list of cores.
    cpusets : str
        In the format of libprocessor's configuration: one group per session, separated by `;`.
    growth : float or None
        Factor by which the rates of its models can grow; None: no traffic.
    """

    models: tuple[str, ...]
    cores: tuple[int, ...]
    nodes: tuple[int, ...]
    sessions: int
    threads_per_session: int
    cpusets: str
    growth: float | None
    predicted: dict[str, PredictionReport]


@dataclass(frozen=True)
class AdditionReport:
    """Result of trying out a model: whether it fits into the plan.

    Attributes
    ----------
    cores : int
        Number of cores that would have to move to the allocation of the new model.
    taken_from : dict of str to int
        Number of cores that each allocation would give.
    """

    model: str
    verdict: Verdict
    sentence: str
    cores: int
    taken_from: dict[str, int]


@dataclass(frozen=True)
class CurveReport:
    """Effect of a number of cores.

    Attributes
    ----------
    p99_ms : float [ms] or None
        None: overload.
    growth : float or None
        None: no traffic.
    """

    cores: int
    sessions: int
    threads_per_session: int
    p99_ms: float | None
    growth: float | None
    meets: bool


@dataclass(frozen=True)
class ExplanationReport:
    """Reasons for the allocation of a model.

    Attributes
    ----------
    need : int or None
        Fewest cores that meet the SLOs of its allocation; None: no number does.
    demand_cores, demand_pool_cores : float [cores]
        Cores that the model, and its whole pool, keep busy on average.
    service_mean_ms, service_p99_ms : float [ms]
        On idle cores, including slow-downs by other models.
    """

    model: str
    shares_with: tuple[str, ...]
    cores: int
    need: int | None
    demand_cores: float
    demand_pool_cores: float
    service_mean_ms: float
    service_p99_ms: float
    predicted: PredictionReport
    curve: tuple[CurveReport, ...]
    why: tuple[str, ...]


@dataclass(frozen=True)
class PlanReport:
    """Plan made by `cost-model plan`.

    Attributes
    ----------
    reasons : tuple of str
        Reasons why the plan is not feasible, and findings about the machine.
    growth : float or None
        Factor by which all rates can grow, not counting SLOs that no number of cores meets; None: no traffic.
    memory_factor : float
        Slow-down by memory contention that the prediction includes.
    memory : MemoryReport
        Present if the workload names the tables of models.
    addition : AdditionReport
        Present with `--add`.
    explanations : tuple of ExplanationReport
        Present with `--explain` or `--explain-model`.
    """

    SCHEMA = "plan/1"

    feasible: bool
    reasons: tuple[str, ...]
    growth: float | None
    machine: MachineReport
    memory_factor: float
    interference: InterferenceReport
    allocations: tuple[AllocationReport, ...]
    memory: MemoryReport | None = field(metadata=_OPTIONAL)
    addition: AdditionReport | None = field(metadata=_OPTIONAL)
    explanations: tuple[ExplanationReport, ...] | None = field(metadata=_OPTIONAL)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        absent = {name for name in ("memory", "addition", "explanations") if not getattr(self, name)}
        return {"schema": self.SCHEMA} | {name: value for name, value in asdict(self).items() if name not in absent}


def plan_report(made: Plan, addition: Addition | None = None, explanations: Iterable[Explanation] = ()) -> PlanReport:
    """Describe a plan, the addition that led to it, and the explanations of models."""
    machine, interference = made.machine, made.interference
    return PlanReport(
        feasible=made.feasible,
        reasons=made.reasons,
        growth=_finite(made.growth),
        machine=MachineReport(len(machine.cores), len(machine.nodes), machine.smt, machine.notes),
        memory_factor=round(made.memory_factor, 4),
        interference=InterferenceReport(interference.switch, interference.shared_cache, interference.bandwidth),
        allocations=tuple(_allocation(made, allocation) for allocation in made.allocations),
        memory=None if made.memory is None else _memory(made.memory),
        addition=None if addition is None else _addition(addition),
        explanations=tuple(map(_explanation, explanations)),
    )


def _allocation(plan: Plan, allocation: Allocation) -> AllocationReport:
    return AllocationReport(
        models=allocation.models,
        cores=allocation.cores,
        nodes=tuple(sorted({plan.machine.cores[core].node for core in allocation.cores})),
        sessions=allocation.sessions,
        threads_per_session=allocation.threads_per_session,
        cpusets=allocation.cpus(plan.machine),
        growth=_finite(allocation.growth),
        predicted={name: _prediction(predicted) for name, predicted in allocation.predicted.items()},
    )


def _memory(memory: MemoryUse) -> MemoryReport:
    return MemoryReport(memory.limit, memory.used, memory.models)


def _prediction(prediction: Prediction) -> PredictionReport:
    return PredictionReport(
        qps=_rounded(prediction.qps),
        utilisation=_rounded(prediction.utilisation),
        mean_wait_ms=_finite(prediction.mean_wait_ms),
        p50_ms=_finite(prediction.p50_ms),
        p99_ms=_finite(prediction.p99_ms),
        late=_rounded(prediction.late),
        slo_p99_ms=_rounded(prediction.slo_p99_ms),
        meets=prediction.meets,
    )


def _addition(addition: Addition) -> AdditionReport:
    return AdditionReport(addition.name, addition.verdict, addition.sentence, addition.cores, addition.taken_from)


def _explanation(explanation: Explanation) -> ExplanationReport:
    return ExplanationReport(
        model=explanation.name,
        shares_with=tuple(name for name in explanation.allocation.models if name != explanation.name),
        cores=len(explanation.allocation.cores),
        need=explanation.need,
        demand_cores=_rounded(explanation.demand_cores),
        demand_pool_cores=_rounded(explanation.demand_pool_cores),
        service_mean_ms=_rounded(explanation.service_mean_ms),
        service_p99_ms=_rounded(explanation.service_p99_ms),
        predicted=_prediction(explanation.predicted),
        curve=tuple(
            CurveReport(
                cores=point.cores,
                sessions=point.sessions,
                threads_per_session=point.threads_per_session,
                p99_ms=_finite(point.p99_ms),
                growth=_finite(point.growth),
                meets=point.meets,
            )
            for point in explanation.curve
        ),
        why=explanation.why,
    )


def _rounded(value: float) -> float:
    return round(value, 6)


def _finite(value: float) -> float | None:
    """Return a value that JSON can represent: None instead of infinity."""
    return _rounded(value) if math.isfinite(value) else None
