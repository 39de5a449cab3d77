# SPDX-License-Identifier: Apache-2.0
"""Store a trace: measurements of models under Poisson arrivals on one machine."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cost_model._reading import Reader, describe
from cost_model.errors import ProfileError
from cost_model.service import Floats

SCHEMA = "trace/1"
_PAIR = ("rows", "weight")
LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 1.0)


@dataclass(frozen=True)
class Times:
    """Summarize times by their quantiles.

    Parameters
    ----------
    count : int
    mean_us : float [µs]
    quantiles_us : tuple of float [µs]
        At `LEVELS`.
    """

    count: int
    mean_us: float
    quantiles_us: tuple[float, ...]

    @staticmethod
    def of(times_us: Floats) -> Times:
        """Summarize times [µs], at least one."""
        quantiles = np.quantile(times_us, LEVELS)
        return Times(len(times_us), float(times_us.mean()), tuple(float(quantile) for quantile in quantiles))

    def at(self, level: float) -> float:
        """Return the quantile [µs] of one of `LEVELS`."""
        return self.quantiles_us[LEVELS.index(level)]


@dataclass(frozen=True)
class Served:
    """Describe one model in a run.

    Parameters
    ----------
    name : str
    fingerprint : str
        Fingerprint of its graph, as in its profile.
    rows : tuple of (rows, weight)
        Distribution of rows per request.
    qps : float [requests/s]
        Rate of its Poisson arrivals.
    requests, failed : int
    latency : Times
        From the scheduled time of a request to its response.
    service, idle_service : tuple of (rows, Times)
        From the moment at which its session could begin to the response, which queueing theory calls the service time:
        for requests that waited, and for those that found the core idle. Only known for a model alone on its core; if
        several models share one core, it cannot be measured separately.
    """

    name: str
    fingerprint: str
    rows: tuple[tuple[int, float], ...]
    qps: float
    requests: int
    failed: int
    latency: Times
    service: tuple[tuple[int, Times], ...] = ()
    idle_service: tuple[tuple[int, Times], ...] = ()


@dataclass(frozen=True)
class Run:
    """Describe one run: models on the same cores, for some seconds.

    Parameters
    ----------
    cores : int
        Shared by the models; each model has a session on them.
    seconds : float [s]
    seed : int
        Seed of the arrivals.
    utilisation : float
        Part of the time during which requests were running on the cores.
    late_p99_us : float [µs]
        99th percentile of how late requests were sent.
    stolen, others : float
        Parts of the cores' time that the hypervisor and other processes used.
    models : tuple of Served
    label : str
        Description for readers.
    """

    cores: int
    seconds: float
    seed: int
    utilisation: float
    late_p99_us: float
    stolen: float
    others: float
    models: tuple[Served, ...]
    label: str = ""


@dataclass(frozen=True)
class Trace:
    """Contain the runs on one machine.

    Parameters
    ----------
    cpu_model : str
    runs : tuple of Run
    environment : dict
        Machine, versions, commit; for readers.
    """

    cpu_model: str
    runs: tuple[Run, ...]
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "environment": self.environment,
            "cpu_model": self.cpu_model,
            "levels": list(LEVELS),
            "runs": [_run_json(run) for run in self.runs],
        }

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def load_trace(path: str | Path) -> Trace:
    """Read a trace.

    Raises
    ------
    ProfileError
        If it cannot be read or is damaged; the message names the file and the member.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: {error}, expected a trace") from error
    reader = Reader(str(path), data, ProfileError)
    reader.text("schema", one_of=[SCHEMA])
    environment = reader.take("environment", {})
    model = reader.text("cpu_model")
    if tuple(reader.items("levels")) != LEVELS:
        raise ProfileError(f"{path}: levels of another kind found, expected {LEVELS}")
    runs = [Reader(f"{path}: runs[{number}]", item, ProfileError) for number, item in enumerate(reader.items("runs"))]
    reader.end()
    return Trace(model, tuple(_read_run(run) for run in runs), environment)


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "label": run.label,
        "cores": run.cores,
        "seconds": run.seconds,
        "seed": run.seed,
        "utilisation": round(run.utilisation, 5),
        "late_p99_us": round(run.late_p99_us, 2),
        "stolen": round(run.stolen, 5),
        "others": round(run.others, 5),
        "models": [_served_json(model) for model in run.models],
    }


def _served_json(served: Served) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": served.name,
        "fingerprint": served.fingerprint,
        "rows": [list(pair) for pair in served.rows],
        "qps": served.qps,
        "requests": served.requests,
        "failed": served.failed,
        "latency_us": _times_json(served.latency),
    }
    for key, by_rows in (("service_us", served.service), ("idle_service_us", served.idle_service)):
        if by_rows:
            data[key] = [{"rows": rows, **_times_json(times)} for rows, times in by_rows]
    return data


def _times_json(times: Times) -> dict[str, Any]:
    return {
        "count": times.count,
        "mean": round(times.mean_us, 2),
        "quantiles": [round(quantile, 2) for quantile in times.quantiles_us],
    }


def _read_run(reader: Reader) -> Run:
    models = [
        Reader(f"{reader.place}.models[{n}]", item, ProfileError) for n, item in enumerate(reader.items("models"))
    ]
    run = Run(
        reader.integer("cores", least=1),
        reader.number("seconds", positive=True),
        reader.integer("seed"),
        reader.number("utilisation"),
        reader.number("late_p99_us"),
        reader.number("stolen"),
        reader.number("others"),
        tuple(_read_served(model) for model in models),
        str(reader.take("label", "")),
    )
    reader.end()
    return run


def _read_served(reader: Reader) -> Served:
    rows = reader.items("rows")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in rows):
        raise reader.fail("rows", describe(rows), "pairs of rows and weight")
    pairs = [
        Reader(f"{reader.place}.rows[{n}]", dict(zip(_PAIR, row, strict=True)), ProfileError)
        for n, row in enumerate(rows)
    ]
    served = Served(
        reader.text("name"),
        reader.text("fingerprint"),
        tuple((pair.integer("rows", least=1), pair.number("weight", positive=True)) for pair in pairs),
        reader.number("qps", positive=True),
        reader.integer("requests", least=1),
        reader.integer("failed"),
        _read_times(reader.inner("latency_us")),
        *(_read_by_rows(reader, key) for key in ("service_us", "idle_service_us")),
    )
    reader.end()
    return served


def _read_by_rows(reader: Reader, key: str) -> tuple[tuple[int, Times], ...]:
    places = [Reader(f"{reader.place}.{key}[{n}]", item, ProfileError) for n, item in enumerate(reader.items(key, []))]
    return tuple((place.integer("rows", least=1), _read_times(place)) for place in places)


def _read_times(reader: Reader) -> Times:
    count, mean = reader.integer("count", least=1), reader.number("mean", positive=True)
    quantiles = reader.items("quantiles")
    good = all(isinstance(quantile, int | float) and 0 < quantile < 1e12 for quantile in quantiles)
    if len(quantiles) != len(LEVELS) or not good or sorted(quantiles) != quantiles:
        raise reader.fail("quantiles", f"{len(quantiles)} values", f"{len(LEVELS)} rising times above 0")
    reader.end()
    return Times(count, mean, tuple(float(quantile) for quantile in quantiles))
