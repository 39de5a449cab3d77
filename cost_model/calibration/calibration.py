# SPDX-License-Identifier: Apache-2.0
"""Store how much a machine under load adds to profiles; the file also contains coefficients of interference."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from cost_model._reading import Reader
from cost_model.calibration.service import CalibratedService, Disturbance
from cost_model.errors import ProfileError
from cost_model.interference import COEFFICIENTS, Interference
from cost_model.profiling.profile import cpu_model
from cost_model.service import ServiceTable, ServiceTime
from cost_model.workload import Tenant, Workload

SCHEMA = "calibration/1"


class Linear(NamedTuple):
    """`overhead_us` [µs] and `factor` of a graph; see `Disturbance`."""

    overhead_us: float
    factor: float


@dataclass(frozen=True)
class Calibration:
    """Describe the result of `cost_model.calibration.calibrate`.

    Parameters
    ----------
    cpu_model : str
        CPU model of the machine that was measured.
    disturbance : Disturbance
    interference : Interference
        Measured; the default if neither the trace nor the profiles determine it.
    graphs : mapping of fingerprint to Linear
        Values of graphs that ran alone in the trace. They replace those of `disturbance`, which describe all graphs.
    fitted : dict
        The data of the fit and its quality; for readers.
    environment : dict
        Machine, versions, commit; for readers.
    """

    cpu_model: str
    disturbance: Disturbance
    interference: Interference
    graphs: Mapping[str, Linear] = field(default_factory=dict)
    fitted: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    def model(self, model: Tenant) -> Tenant:
        """Return a model with the service times that it has on this machine under load."""
        if not isinstance(model.service, ServiceTime | ServiceTable):
            return model
        return replace(model, service=CalibratedService(model.service, self.disturbance_of(model.service)))

    def disturbance_of(self, service: ServiceTime | ServiceTable) -> Disturbance:
        """Return what the machine adds to service times: the values of the graph itself if it was measured."""
        linear = self.graphs.get(service.graph) if isinstance(service, ServiceTable) else None
        return replace(self.disturbance, **linear._asdict()) if linear else self.disturbance

    def workload(self, workload: Workload) -> Workload:
        """Return a workload with the service times that its models have on this machine under load."""
        return replace(workload, models=tuple(self.model(model) for model in workload.models))

    def to_json(self) -> dict[str, Any]:
        data = {
            "schema": SCHEMA,
            "environment": self.environment,
            "cpu_model": self.cpu_model,
            "overhead_us": round(self.disturbance.overhead_us, 3),
            "factor": round(self.disturbance.factor, 5),
            "cv": round(self.disturbance.cv, 5),
            "graphs": {
                graph: {"overhead_us": round(linear.overhead_us, 3), "factor": round(linear.factor, 5)}
                for graph, linear in self.graphs.items()
            },
            "stalls": [{"duration_us": round(d, 2), "per_s": round(rate, 6)} for d, rate in self.disturbance.stalls],
            "interference": {name: round(getattr(self.interference, name), 5) for name in COEFFICIENTS},
            "fitted": self.fitted,
        }
        if not self.disturbance.stalls:
            del data["stalls"]
        return data

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)


def load_calibration(path: str | Path, *, any_cpu: bool = False) -> Calibration:
    """Read a calibration.

    Parameters
    ----------
    path : path-like
    any_cpu : bool
        Also accept a calibration of another CPU model.

    Raises
    ------
    ProfileError
        If it cannot be read, is damaged, or comes from another CPU model; the message names the file and the member.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: {error}, expected a calibration") from error
    reader = Reader(str(path), data, ProfileError)
    reader.text("schema", one_of=[SCHEMA])
    stalls = []
    for number, item in enumerate(reader.items("stalls", [])):
        stall = Reader(f"{path}: stalls[{number}]", item, ProfileError)
        stalls.append((stall.number("duration_us", positive=True), stall.number("per_s", positive=True)))
        stall.end()
    costs = reader.inner("interference")
    interference = Interference(
        costs.number("switch"),
        costs.number("shared_cache"),
        costs.number("bandwidth"),
        costs.number("knee", most=0.95),
        costs.number("idle_start_us"),
    )
    costs.end()
    graphs = {}
    if "graphs" in reader:
        of_graphs = reader.inner("graphs")
        for graph in data["graphs"]:
            own = of_graphs.inner(graph)
            graphs[graph] = _linear(own)
            own.end()
    calibration = Calibration(
        reader.text("cpu_model"),
        Disturbance(*_linear(reader), reader.number("cv", 0.0), tuple(stalls)),
        interference,
        graphs,
        reader.take("fitted", {}),
        reader.take("environment", {}),
    )
    reader.end()
    if not any_cpu and calibration.cpu_model != cpu_model():
        raise ProfileError(
            f"{path}: a calibration from '{calibration.cpu_model}' found, expected one from '{cpu_model()}'"
        )
    return calibration


def _linear(reader: Reader) -> Linear:
    return Linear(reader.number("overhead_us", least=-math.inf), reader.number("factor", positive=True))
