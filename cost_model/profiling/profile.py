# SPDX-License-Identifier: Apache-2.0
"""Store a profile: the measurements of a graph on a machine."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cost_model._reading import Reader, read_json
from cost_model.errors import ProfileError
from cost_model.service import Floats, ServiceTable

SCHEMA = "profile/1"
# Share of CPU time used by other processes above which the figures are unreliable.
BUSY = 0.05
LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)


@dataclass
class Profile:
    """Contain service times of a graph by cores and rows, and the cost of sharing.

    Parameters
    ----------
    fingerprint : str
        Fingerprint of the graph.
    cpu_model : str
        CPU model of the machine that it was measured on.
    points : dict of (cores, rows) to quantiles [µs]
        At `LEVELS`.
    memory_mb : float [MB]
        Memory that loading the model took.
    busy_before, busy_during : float, optional
        Shares of CPU time that other processes used: just before the measurement, and the largest of all points during
        it. None if this was not watched, for example if processor time is measured next to other processes.
    interference : dict of str to float
        `switch`, `shared_cache` and `side_by_side`, as far as they were measured. `side_by_side`, the cost of a second
        copy on another core, is not a coefficient, because the memory bandwidth that the two use is unknown.
    """

    fingerprint: str
    cpu_model: str
    points: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    memory_mb: float = 0.0
    interference: dict[str, float] = field(default_factory=dict)
    busy_before: float | None = None
    busy_during: float | None = None

    @property
    def disturbed(self) -> float:
        """Return the larger share of CPU time that other processes used, if it is worth a warning; otherwise 0."""
        most = max(self.busy_before or 0.0, self.busy_during or 0.0)
        return most if most > BUSY else 0.0

    def add(self, cores: int, rows: int, times_us: Floats) -> None:
        self.points[cores, rows] = [float(quantile) for quantile in np.quantile(times_us, LEVELS)]

    def missing(self, cores: list[int], rows: list[int]) -> list[tuple[int, int]]:
        """Return the points that are still to be measured."""
        return [(c, r) for c in cores for r in rows if (c, r) not in self.points]

    @property
    def service(self) -> ServiceTable:
        """Return the service times for the planner.

        Raises
        ------
        ProfileError
            If a number of rows is missing for a number of cores, or one core is missing.
        """
        cores = sorted({c for c, _ in self.points})
        rows = sorted({r for _, r in self.points})
        gaps = self.missing(cores, rows)
        if gaps or cores[:1] != [1]:
            what = f"no times for {gaps[0][1]} rows on {gaps[0][0]} cores" if gaps else "no times for 1 core"
            raise ProfileError(f"profile {self.fingerprint}: {what} found, expected every pair of cores and rows")
        table = tuple(tuple(tuple(self.points[c, r]) for r in rows) for c in cores)
        return ServiceTable(tuple(cores), tuple(rows), LEVELS, table, self.disturbed, self.fingerprint)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "fingerprint": self.fingerprint,
            "cpu_model": self.cpu_model,
            **{name: round(share, 3) for name, share in self._busy().items() if share is not None},
            "levels": list(LEVELS),
            "points": [
                {"cores": c, "rows": r, "quantiles_us": [round(quantile, 3) for quantile in quantiles]}
                for (c, r), quantiles in sorted(self.points.items())
            ],
            "memory_mb": round(self.memory_mb, 1),
            "interference": {name: round(value, 4) for name, value in self.interference.items()},
        }

    def _busy(self) -> dict[str, float | None]:
        return {"busy_before": self.busy_before, "busy_during": self.busy_during}

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def load_profile(path: str | Path, *, any_cpu: bool = False) -> Profile:
    """Read a profile.

    Parameters
    ----------
    path : path-like
    any_cpu : bool
        Also accept a profile of another CPU model.

    Raises
    ------
    ProfileError
        If it cannot be read, is damaged, or comes from another CPU model.
    """
    data = read_json(Path(path), ProfileError, "a profile")
    reader = Reader(str(path), data, ProfileError)
    reader.text("schema", one_of=[SCHEMA])
    if tuple(reader.items("levels")) != LEVELS:
        raise ProfileError(f"{path}: levels of another kind found, expected {LEVELS}")
    profile = Profile(reader.text("fingerprint"), reader.text("cpu_model"), memory_mb=reader.number("memory_mb", 0.0))
    for name in ("busy_before", "busy_during"):
        if name in reader:
            setattr(profile, name, reader.number(name, most=1))
    for number, item in enumerate(reader.items("points", [])):
        point = Reader(f"{path}: points[{number}]", item, ProfileError)
        cores, rows = point.integer("cores", least=1), point.integer("rows", least=1)
        times = point.items("quantiles_us")
        values = np.array(times, dtype=object)
        good = all(isinstance(value, int | float) and 0 < value < 1e12 for value in values)
        if len(times) != len(LEVELS) or not good or sorted(times) != times:
            raise point.fail("quantiles_us", f"{len(times)} values", f"{len(LEVELS)} rising times above 0")
        profile.points[cores, rows] = [float(value) for value in times]
    costs = reader.inner("interference")
    profile.interference = {
        name: costs.number(name) for name in ("switch", "shared_cache", "side_by_side") if name in costs
    }
    # Older files had the slow-down side by side under this name.
    costs.take("bandwidth", None)
    costs.end()
    reader.end()
    if not any_cpu and profile.cpu_model != cpu_model():
        raise ProfileError(f"{path}: a profile from '{profile.cpu_model}' found, expected one from '{cpu_model()}'")
    return profile


def cpu_model() -> str:
    """Return the name of this machine's CPU."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine
