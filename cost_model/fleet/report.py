# SPDX-License-Identifier: Apache-2.0
"""Define the output of `cost-model place --json`; docs/schemas/placement.schema.json is generated from these classes.

The file is also the input of whoever applies the placement, and of `--previous`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cost_model._reading import Reader, describe, read_json
from cost_model.errors import UsageError
from cost_model.fleet.explain import Explanation, reasons_of
from cost_model.fleet.placer import Placement, Previous
from cost_model.machine import cpu_ranges
from cost_model.planning.placement import place as choose_cores

SCHEMA = "placement/1"
Survive = Annotated[str, {"enum": ["none", "machine", "zone"]}]


@dataclass(frozen=True)
class ReplicaReport:
    """A model on a machine.

    Attributes
    ----------
    name : str
        Name in the workload.
    model : str
        Name under which clients know it: `serves` of the workload, or its name.
    version : str or None
        None: the workload names none.
    machine : str
    cores : int
        Number of whole physical cores that it may use, together with the models of its pool.
    core_list : str
        Which cores, as ranges of indices into the machine's cores in the order of NUMA nodes and CPUs.
    pool : int or None
        Models on a machine with the same number share its cores; None: no other model uses them.
    qps : float [requests/s]
        Requests that it gets while no machine is missing.
    qps_after_loss : float [requests/s]
        Requests that it gets after the loss for which its cores suffice.
    """

    name: str
    model: str
    version: str | None
    machine: str
    cores: int
    core_list: str
    pool: int | None
    qps: float
    qps_after_loss: float


@dataclass(frozen=True)
class MachineReport:
    """The models of a machine, and what they take of it.

    Attributes
    ----------
    zone : str or None
    cores, used_cores : int
    memory_gb, used_memory_gb : float [GB]
        A table counts once, however many models read it.
    models : int
        Number of models.
    """

    name: str
    zone: str | None
    cores: int
    used_cores: int
    memory_gb: float
    used_memory_gb: float
    models: int


@dataclass(frozen=True)
class MoveReport:
    """Machines that must load a model, and those that no longer need it, compared with the previous placement."""

    name: str
    load_on: tuple[str, ...]
    unload_from: tuple[str, ...]


@dataclass(frozen=True)
class UnplacedReport:
    """A model without a place, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class ModelExplanationReport:
    """Why a model is where it is, and what would change it."""

    name: str
    why: tuple[str, ...]


@dataclass(frozen=True)
class PlacementReport:
    """Placement of models on machines, made by `cost-model place`.

    Attributes
    ----------
    feasible : bool
        Whether every model has a place and meets its SLO after the loss of any machine or zone, as `survive` says.
    reasons : tuple of str
        Why it is not feasible, and other findings.
    survive : str
        Loss that is survived.
    headroom : float
        Factor of all rates for which it was made.
    cost : float
        Sum of the costs of used machines.
    bound : float
        Lower bound on that cost for any placement of the same pools.
    gap : float or None
        Part by which the cost is above the bound; None: models lack a place.
    machines_used : int
    replicas : tuple of ReplicaReport
        Ordered by model.
    machines : tuple of MachineReport
        Machines with models.
    unplaced : tuple of UnplacedReport
    moves : tuple of MoveReport
        Present with `--previous`; empty if no model moves.
    explanations : tuple of ModelExplanationReport
        Present with `--explain`.
    """

    SCHEMA = SCHEMA

    feasible: bool
    reasons: tuple[str, ...]
    survive: Survive
    headroom: float
    cost: float
    bound: float
    gap: float | None
    machines_used: int
    replicas: tuple[ReplicaReport, ...]
    machines: tuple[MachineReport, ...]
    unplaced: tuple[UnplacedReport, ...]
    moves: tuple[MoveReport, ...]
    explanations: tuple[ModelExplanationReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {"schema": SCHEMA, **asdict(self)}


def placement_report(made: Placement, explanations: Iterable[Explanation] = ()) -> PlacementReport:
    """Describe a placement."""
    packing, problem = made.packing, made.problem
    replicas = sorted(_replicas(made), key=lambda replica: (replica.name, replica.machine))
    used = [place for place, numbers in enumerate(packing.residents) if numbers]
    machines = tuple(
        MachineReport(
            problem.fleet.machines[place].name,
            problem.fleet.machines[place].zone,
            int(packing.cores[place]),
            int(packing.cores[place] - packing.free["cores"][place]),
            round(float(packing.memory[place]), 6),
            round(float(packing.memory[place] - packing.free["memory"][place]), 6),
            sum(len(problem.units[number].names) for number in packing.residents[place]),
        )
        for place in used
    )
    reasons, missing = reasons_of(made)
    return PlacementReport(
        feasible=made.feasible,
        reasons=reasons,
        survive=problem.survival.kind,
        headroom=made.headroom,
        cost=round(made.cost, 6),
        bound=round(problem.prices.bound, 6),
        gap=round(made.gap, 6) if math.isfinite(made.gap) else None,
        machines_used=len(used),
        replicas=tuple(replicas),
        machines=machines,
        unplaced=tuple(UnplacedReport(name, why) for name, why in missing),
        moves=tuple(MoveReport(*move) for move in made.moves()),
        explanations=tuple(ModelExplanationReport(each.name, each.why) for each in explanations),
    )


def _replicas(made: Placement) -> list[ReplicaReport]:
    """Return all models on all machines, with the cores of each: largest allocations first, on one NUMA node each."""
    packing, problem = made.packing, made.problem
    found = []
    for place, numbers in enumerate(packing.residents):
        machine = problem.fleet.machines[place]
        order = sorted(numbers)
        counts = [int(packing.hosts[number][place].cores[place]) for number in order]
        chosen = choose_cores(machine.machine, counts, lambda index, sizes=counts: sizes[index])  # type: ignore[misc]
        for number, cores in zip(order, chosen, strict=True):
            unit, option = problem.units[number], packing.hosts[number][place]
            for member in unit.members:
                footprint = member.model.footprint
                found.append(
                    ReplicaReport(
                        member.model.name,
                        footprint.serves or member.model.name,
                        footprint.version,
                        machine.name,
                        len(cores),
                        cpu_ranges(cores),
                        number if len(unit.members) > 1 else None,
                        round(member.qps / made.headroom / option.replicas, 6),
                        round(member.qps / made.headroom / problem.survival.left(option.replicas), 6),
                    )
                )
    return found


def read_previous(path: Path) -> Previous:
    """Read which models a placement put onto which machines.

    Raises
    ------
    UsageError
        If the file is not a placement.
    """
    data = read_json(path, UsageError, "the JSON of `cost-model place --json`")
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = describe(data.get("schema")) if isinstance(data, dict) else describe(data)
        raise UsageError(f"{path}: schema {found} found, expected '{SCHEMA}' of `cost-model place --json`")
    places: dict[str, set[str]] = {}
    replicas = data.get("replicas")
    if not isinstance(replicas, list):
        raise UsageError(f"{path}: replicas: {describe(replicas)} found, expected a list")
    for number, item in enumerate(replicas):
        reader = Reader(f"{path}: replicas[{number}]", item, UsageError)
        places.setdefault(reader.text("name"), set()).add(reader.text("machine"))
    return {name: frozenset(machines) for name, machines in places.items()}
