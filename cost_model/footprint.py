# SPDX-License-Identifier: Apache-2.0
"""Describe what only placements on several machines need to know of a model: replicas, version, kinds of CPU."""

from __future__ import annotations

from dataclasses import dataclass

from cost_model._reading import Reader, describe
from cost_model.errors import WorkloadError

_MOST_REPLICAS = 10_000


@dataclass(frozen=True)
class Footprint:
    """Contain what a model needs on each machine that serves it, and how many machines may serve it.

    Parameters
    ----------
    memory_gb, disk_gb : float [GB]
        What its files do not show: besides the graph, variables and tables of `ModelMemory`.
    least_replicas : int
        Fewest machines.
    most_replicas : int, optional
        Most machines; None: chosen by the planner.
    serves : str, optional
        Name under which clients know the model, if it is not its own: a variant is a version of another model.
    version : str, optional
        Version that is placed.
    speedups : tuple of (feature, factor)
        How much faster it runs on a CPU with a feature, for example because it may use bf16.
    """

    memory_gb: float = 0.0
    disk_gb: float = 0.0
    least_replicas: int = 1
    most_replicas: int | None = None
    serves: str | None = None
    version: str | None = None
    speedups: tuple[tuple[str, float], ...] = ()


NO_FOOTPRINT = Footprint()


def parse_footprint(reader: Reader) -> Footprint:
    """Take the members of a model that only a placement on several machines needs."""
    least, most = _replicas(reader)
    return Footprint(
        reader.number("memory_gb", 0.0),
        reader.number("disk_gb", 0.0),
        least,
        most,
        reader.text("serves") if "serves" in reader else None,
        _version(reader),
        _speedups(reader),
    )


def _replicas(reader: Reader) -> tuple[int, int | None]:
    """Take `replicas`: a number, or a mapping of `least` and `most`."""
    if "replicas" not in reader:
        return 1, None
    value = reader.take("replicas")
    if not isinstance(value, dict):
        count = Reader(reader.place, {"replicas": value}).integer("replicas", least=1, most=_MOST_REPLICAS)
        return count, count
    inner = Reader(f"{reader.place}.replicas", value)
    least = inner.integer("least", 1, least=1, most=_MOST_REPLICAS)
    most = inner.integer("most", least=least, most=_MOST_REPLICAS) if "most" in inner else None
    inner.end()
    return least, most


def _version(reader: Reader) -> str | None:
    if "version" not in reader:
        return None
    value = reader.take("version")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise reader.fail("version", describe(value), "a number or a text")
    return str(value)


def _speedups(reader: Reader) -> tuple[tuple[str, float], ...]:
    if "speedups" not in reader:
        return ()
    value = reader.take("speedups")
    inner = Reader(f"{reader.place}.speedups", value)
    found = []
    for feature in sorted(value, key=str):
        if not isinstance(feature, str) or not feature:
            raise WorkloadError(f"{inner.place}: {describe(feature)} found, expected the name of a CPU feature")
        found.append((feature, inner.number(feature, least=0.1, most=100)))
    return tuple(found)
