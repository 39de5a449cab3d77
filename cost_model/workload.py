# SPDX-License-Identifier: Apache-2.0
"""Define what runs on a machine: models with service times, rows, SLOs and rates, and kinds of traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cost_model._reading import Reader, check_number, describe, read_yaml, workload_file
from cost_model.errors import ProfileError, WorkloadError
from cost_model.footprint import NO_FOOTPRINT, Footprint, parse_footprint
from cost_model.machine import Machine, parse_machine
from cost_model.memory import ModelMemory, parse_memory
from cost_model.service import Points, RowDistribution, Service, ServiceTable, ServiceTime
from cost_model.traffic import Event, Reshare, Sine, State, Traffic, parse_traffic

ROLES = ("baseline", "variant")
MOST_QPS = 1e9
"""Highest accepted rate [requests/s]."""
_Profile = Callable[[str], ServiceTable]

__all__ = [
    "MOST_QPS",
    "ROLES",
    "Event",
    "Footprint",
    "Points",
    "Reshare",
    "RowDistribution",
    "Service",
    "ServiceTable",
    "ServiceTime",
    "Sine",
    "State",
    "Tenant",
    "Traffic",
    "Workload",
    "load_workload",
    "parse_workload",
]


@dataclass(frozen=True)
class Tenant:
    """Describe a model and its traffic.

    Parameters
    ----------
    name : str
    role : "baseline" or "variant"
    service : Service
        A `ServiceTime`, a `ServiceTable`, or one of them with a calibration applied.
    rows : RowDistribution
    slo_p99_ms : float [ms]
        99 of 100 requests must be completed within this time, including waiting.
    bytes_per_row : float [bytes]
        Bytes read from memory for each row.
    of : str, optional
        The model of which it is a variant.
    group : str, optional
        The group in the workload file that defined it.
    share : float, optional
        Fraction of the requests of the whole workload.
    qps : float, optional [requests/s]
        Its own rate, instead of a share.
    dedicated : bool
        It gets its own cores even if it is a variant.
    memory : ModelMemory, optional
        None: not known, and not counted.
    footprint : Footprint
        Replicas and more, for placements on several machines.
    """

    name: str
    role: str
    service: Service
    rows: RowDistribution
    slo_p99_ms: float
    bytes_per_row: float = 0.0
    of: str | None = None
    group: str | None = None
    share: float | None = None
    qps: float | None = None
    dedicated: bool = False
    memory: ModelMemory | None = None
    footprint: Footprint = NO_FOOTPRINT

    def points(self, threads: int = 1) -> Points:
        """Return the distribution of its service time [µs] over requests of all sizes."""
        return self.service.points(self.rows, threads)


@dataclass(frozen=True)
class Workload:
    """Contain the inputs of a plan or a simulation.

    Parameters
    ----------
    machine : Machine, optional
        None if the file names none; the machine is then passed separately.
    models : tuple of Tenant
        In the order of the file, with groups expanded to `name-0`, `name-1`, ...
    traffic : tuple of Traffic
    seeds : tuple of int
    total_qps : float, optional [requests/s]
        Total of all models with a share, at level 1.
    """

    machine: Machine | None
    models: tuple[Tenant, ...]
    traffic: tuple[Traffic, ...] = ()
    seeds: tuple[int, ...] = (1,)
    total_qps: float | None = None

    def model(self, name: str) -> Tenant:
        """Return a model by its name."""
        for model in self.models:
            if model.name == name:
                return model
        raise WorkloadError(f"{name}: no such model, expected one of {', '.join(m.name for m in self.models[:8])}, …")

    def qps_by_model(self, total_qps: float | None = None) -> dict[str, float]:
        """Return the rate of each model [requests/s] at level 1.

        Raises
        ------
        WorkloadError
            If models have shares and there is no total rate.
        """
        total = self.total_qps if total_qps is None else total_qps
        rates = {}
        for model in self.models:
            if model.qps is not None:
                rates[model.name] = model.qps
            elif total is None:
                raise WorkloadError(
                    f"{model.name}: a share of an unknown total found, expected total_qps in the file or --total-qps"
                )
            else:
                rates[model.name] = total * (model.share or 0.0)
        return rates


def load_workload(path: str | Path, *, any_cpu: bool = False) -> Workload:
    """Read a workload file (YAML).

    Parameters
    ----------
    path : path-like
        Path, or the name of a scenario in the package: `box128`.
    any_cpu : bool
        Also accept profiles of another CPU model.

    Raises
    ------
    WorkloadError
        If it cannot be read, or a member is missing, unknown or out of range; the message names file and member.
    """
    place = workload_file(path)
    try:
        return parse_workload(read_yaml(place), folder=place.parent, any_cpu=any_cpu)
    except (WorkloadError, ProfileError) as error:
        if not str(error).startswith(str(place)):
            error.args = (f"{place}: {error}",)
        raise


def parse_workload(data: object, *, folder: Path = Path(), any_cpu: bool = False) -> Workload:
    """Parse a workload from the mapping of its file; see docs/cost_model.md for its members.

    Parameters
    ----------
    data : mapping
    folder : Path
        Paths of profiles and artifacts are relative to this folder.
    any_cpu : bool
        Also accept profiles of another CPU model.
    """
    reader = Reader("workload", data)
    machine = parse_machine(reader.take("machine")) if "machine" in reader else None
    models: list[Tenant] = []

    def profile(path: str) -> ServiceTable:
        from cost_model.profiling.profile import load_profile

        return load_profile(folder / path, any_cpu=any_cpu).service

    for number, item in enumerate(reader.items("models")):
        before = {model.name: model for model in models}
        models += _parse_models(f"models[{number}]", item, before, profile, folder)
    names = [model.name for model in models]
    for name, count in Counter(names).items():
        if count > 1:
            raise WorkloadError(f"models: '{name}' twice found, expected a name for each")
    if not any(model.role == "baseline" for model in models):
        raise WorkloadError("models: no baseline found, expected at least one model with role 'baseline'")
    _check_shares(models)
    groups = {model.group for model in models if model.group}
    traffic = tuple(
        parse_traffic(f"traffic[{number}]", item, set(names), groups)
        for number, item in enumerate(reader.items("traffic", []))
    )
    seeds = reader.items("seeds", [1])
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise reader.fail("seeds", describe(seed), "integers of at least 0")
    total = reader.number("total_qps", positive=True, most=MOST_QPS) if "total_qps" in reader else None
    reader.end()
    return Workload(machine, tuple(models), traffic, tuple(seeds), total)


def _check_shares(models: list[Tenant]) -> None:
    shares = [model.share for model in models if model.share is not None]
    if shares and abs(sum(shares) - 1) > 1e-6:
        raise WorkloadError(f"models: shares with the sum {sum(shares):.6g} found, expected 1")


def _parse_models(
    place: str, data: object, before: Mapping[str, Tenant], profile: _Profile, folder: Path
) -> list[Tenant]:
    """Read a model, or a group of them."""
    reader = Reader(place, data)
    if ("name" in reader) == ("group" in reader):
        raise WorkloadError(f"{place}: expected either a name or a group")
    group = reader.text("group") if "group" in reader else None
    name = group or reader.text("name")
    reader.place = f"{place} ({name})"
    count = reader.integer("count", least=1, most=10_000) if group else 1
    role = reader.text("role", one_of=ROLES)
    of = reader.text("of") if "of" in reader else None
    if of is not None and of not in before:
        raise reader.fail("of", repr(of), "a model that stands before it in the file")
    services = _parse_service(reader, count, profile)
    like = before[of] if of else None
    common: dict[str, Any] = {
        "rows": _parse_rows(reader, like),
        "slo_p99_ms": reader.number("slo_p99_ms", positive=True),
        "bytes_per_row": reader.number("bytes_per_row", 0.0),
        "of": of,
        "group": group,
        "dedicated": bool(reader.take("dedicated", False)),
        "memory": parse_memory(reader, folder),
        "footprint": parse_footprint(reader),
    }
    if ("share" in reader) == ("qps" in reader):
        raise reader.fail("share", "both share and qps, or neither", "one of them")
    share = reader.number("share", most=1) / count if "share" in reader else None
    qps = reader.number("qps", most=MOST_QPS) / count if "qps" in reader else None
    table, asked = services[0], common["rows"]
    if isinstance(table, ServiceTable) and len(table.rows) == 1 and table.outside(asked) > 0:
        expected = f"{{constant: {table.rows[0]}}}, or a profile with more numbers of rows"
        raise reader.fail("rows", f"others than the {table.rows[0]} rows of its profile", expected)
    reader.end()
    names = [f"{name}-{i}" for i in range(count)] if group else [name]
    first = Tenant(name, role, services[0], share=share, qps=qps, **common)
    return [replace(first, name=member, service=service) for member, service in zip(names, services, strict=True)]


def _parse_service(reader: Reader, count: int, profile: _Profile) -> Sequence[ServiceTime | ServiceTable]:
    if "profile" in reader:
        try:
            return [profile(reader.text("profile"))] * count
        except ProfileError as error:
            raise ProfileError(f"{reader.place}.profile: {error}") from error
    fixed = _spread(reader, "fixed_us", count)
    per_row = _spread(reader, "per_row_us", count)
    cv = _spread(reader, "cv", count)
    parallel = reader.number("parallel", 0.0, most=1)
    services = [ServiceTime(f, d, c, parallel) for f, d, c in zip(fixed, per_row, cv, strict=True)]
    for service in services:
        if service.fixed_us + service.per_row_us <= 0:
            raise reader.fail("fixed_us", "no time at all", "fixed_us or per_row_us above 0")
    return services


def _spread(reader: Reader, key: str, count: int) -> list[float]:
    """Take a number, or a range [first, last] that is spread evenly over a group."""
    value = reader.take(key, expected="a number, or [first, last]")
    ends = value if isinstance(value, list) else [value, value]
    if len(ends) != 2:
        raise reader.fail(key, describe(value), "a number, or [first, last]")

    def number(end: object) -> float:
        return check_number(end, lambda found: reader.fail(key, found, "a number of at least 0"), 0.0, 1e9, False)

    first, last = (number(end) for end in ends)
    return [first + (last - first) * i / max(1, count - 1) for i in range(count)]


def _parse_rows(reader: Reader, like: Tenant | None) -> RowDistribution:
    expected = "constant, lognormal or table, or 'same' with `of`"
    value = reader.take("rows", expected=expected)
    if value == "same":
        if like is None:
            raise reader.fail("rows", "'same' without `of`", expected)
        return like.rows
    rows = Reader(f"{reader.place}.rows", value)
    if "constant" in rows:
        distribution = RowDistribution.constant(rows.integer("constant", least=1, most=1_000_000))
    elif "lognormal" in rows:
        inner = rows.inner("lognormal")
        mean, cv = inner.number("mean", least=1), inner.number("cv", most=20)
        distribution = RowDistribution.lognormal(mean, cv, inner.integer("max", 1 << 30, least=1))
        inner.end()
    elif "table" in rows:
        table = rows.take("table")
        inner = Reader(f"{rows.place}.table", table)
        if not table or not all(isinstance(size, int) and size >= 1 for size in table):
            raise rows.fail("table", describe(table), "a mapping of rows to weights")
        distribution = RowDistribution(
            "table",
            maximum=max(table),
            table=tuple((size, inner.number(size)) for size in sorted(table)),
        )
        if sum(weight for _, weight in distribution.table) <= 0:
            raise rows.fail("table", "no weight above 0", "at least one")
    else:
        raise reader.fail("rows", describe(value), expected)
    rows.end()
    return distribution
