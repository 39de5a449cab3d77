# SPDX-License-Identifier: Apache-2.0
"""The compiled event loop, seen from Python: the same structs as in `engine.cc`, over numpy arrays.

Time is in microseconds. A request is one task, or several if a session's threads divide its rows; each takes a whole
core until it ends. A core that becomes free takes the oldest task of the group (allocation) that owns it; only when
there is none, and it may be lent, that of the group whose oldest task has used up most of its objective.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_model.errors import CostModelError

TABLE = 16384
"""Values in a quantile table."""
QUEUE = 8192
"""Tasks that a group's queue holds."""
BUCKETS_PER_OCTAVE = 64
BUCKETS = 25 * BUCKETS_PER_OCTAVE
NEVER = float("inf")
Floats = NDArray[np.float64]

_TASK = np.dtype([("arrival_us", "f8"), ("work_us", "f8"), ("bytes", "f8"), ("model", "i4"), ("slot", "i4")])
_RUNNING = np.dtype([("end_us", "f8"), ("core", "i8")])
# Field by field as in engine.cc: numbers, then arrays with their element type.
_LOAD: list[tuple[str, Any]] = [("models", "q")] + [
    (name, "i8" if name in {"rows_of", "noise_of", "threads"} else "f8")
    for name in (
        *("fixed_us", "per_row_us", "rows_of", "noise_of", "rows", "noise", "threads"),
        *("parallel", "bytes_per_row", "slo_us", "deadline_us", "excused_from_us", "excused_until_us"),
    )
]
_STATE: list[tuple[str, Any]] = [
    *((name, "q") for name in ("cores", "groups", "nodes", "running", "idle_total", "queued_total")),
    *((name, "q") for name in ("free_slots", "slots", "events")),
    ("random", "Q"),
    *((name, "d") for name in ("now_us", "hazard")),
    ("heap", _RUNNING),
    *((name, "i4") for name in ("core_owner", "core_node", "core_last", "core_model", "core_slot")),
    *((name, "f8") for name in ("core_arrival", "core_rate", "node_rate")),
    *((name, "i4") for name in ("idle", "idle_count", "group_of")),
    *((name, "u1") for name in ("lends", "borrows", "oversubscribed")),
    ("lend_after_us", "f8"),
    ("limit", "i4"),
    ("queue", _TASK),
    *((name, "i8") for name in ("queue_head", "queue_size")),
    *((name, "i4") for name in ("slot_pending", "slot_failed", "slot_free")),
    *((name, "i8") for name in ("arrived", "completed", "dropped", "missed", "judged")),
    *((name, "f8") for name in ("busy_us", "alone_us", "borrowed_us", "latency_us")),
    *((name, "i4") for name in ("in_system", "queued")),
    ("histogram", "i8"),
]
_SEGMENT: list[tuple[str, Any]] = [
    *((name, "d") for name in ("end_us", "rate_per_us")),
    ("alias_share", "f8"),
    ("alias_other", "i8"),
    ("factor", "f8"),
    *((name, "d") for name in ("switch_cost", "oversubscription", "bandwidth", "knee", "node_bytes_per_us")),
    ("idle_start_us", "d"),
]
_NUMBERS: dict[str, Any] = {"q": ctypes.c_int64, "Q": ctypes.c_uint64, "d": ctypes.c_double}


class _Struct:
    """A C struct and the arrays that it points to, each an attribute."""

    def __init__(self, fields: Sequence[tuple[str, Any]], values: dict[str, Any]) -> None:
        kinds = [
            (name, _NUMBERS.get(kind, ctypes.c_void_p) if isinstance(kind, str) else ctypes.c_void_p)
            for name, kind in fields
        ]
        self.raw = type("Raw", (ctypes.Structure,), {"_fields_": kinds})()
        self.arrays: dict[str, NDArray[Any]] = {}
        for name, kind in fields:
            if isinstance(kind, str) and kind in _NUMBERS:
                setattr(self.raw, name, values[name])
                continue
            array = np.array(values[name], kind, order="C")
            self.arrays[name] = array
            setattr(self.raw, name, array.ctypes.data)

    def __getattr__(self, name: str) -> Any:
        arrays = self.__dict__.get("arrays", {})
        return arrays[name] if name in arrays else getattr(self.__dict__["raw"], name)


def make_load(**values: Any) -> _Struct:
    """Make the description of requests; see `Load` in `engine.cc` for its members."""
    return _Struct(_LOAD, {"models": len(values["fixed_us"]), **values})


def make_segment(**values: Any) -> _Struct:
    """Make what is constant until `end_us`; see `Segment` in `engine.cc` for its members."""
    return _Struct(_SEGMENT, values)


def make_state(core_nodes: NDArray[Any], models: int, groups: int, seed: int) -> _Struct:
    """Make the state of an idle machine, all of whose cores and models are of group 0 until `regroup`.

    Parameters
    ----------
    core_nodes : ndarray [cores] int
        NUMA node of each core.
    models, groups : int
    seed : int
    """
    cores, nodes, slots = len(core_nodes), int(max(core_nodes)) + 1, 4 * QUEUE
    sizes: dict[str, Any] = {
        **dict.fromkeys(("core_owner", "core_arrival", "core_rate"), cores),
        **dict.fromkeys(("idle_count", "lends", "borrows", "oversubscribed", "lend_after_us"), groups),
        **dict.fromkeys(("queue_head", "queue_size"), groups),
        **dict.fromkeys(("slot_pending", "slot_failed"), slots),
        **dict.fromkeys(("group_of", "arrived", "completed", "dropped", "missed", "judged"), models),
        **dict.fromkeys(("busy_us", "alone_us", "borrowed_us", "latency_us", "in_system", "queued"), models),
        "heap": cores + 1,
        "node_rate": nodes,
        "idle": (groups, cores),
        "queue": (groups, QUEUE),
        "histogram": (models, BUCKETS),
    }
    values: dict[str, Any] = {name: np.zeros(sizes[name], kind) for name, kind in _STATE if name in sizes}
    random = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    values |= {"cores": cores, "groups": groups, "nodes": nodes, "running": 0, "idle_total": 0, "queued_total": 0}
    values |= {"free_slots": slots, "slots": slots, "events": 0, "random": random, "now_us": 0.0, "hazard": -1.0}
    values |= {name: np.full(cores, -1) for name in ("core_last", "core_model", "core_slot")}
    values |= {"core_node": core_nodes, "slot_free": np.arange(slots), "limit": np.full(models, 2**31 - 1)}
    return _Struct(_STATE, values)


@functools.cache
def _library() -> Any:
    path = Path(__file__).with_name("libcost_model_engine.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CostModelError(f"{path}: {error}, expected the simulator's event loop; `make lib` builds it") from error
    sizes = (ctypes.c_int64 * 4)()
    library.engine_sizes(sizes)
    expected = [len(_LOAD) * 8, len(_STATE) * 8, len(_SEGMENT) * 8, _TASK.itemsize]
    if list(sizes) != expected:
        raise CostModelError(f"{path}: structs of {list(sizes)} bytes found, expected {expected}; build it again")
    return library


def advance(state: Any, load: Any, segment: Any) -> None:
    """Run until the end of the segment; releases the interpreter's lock."""
    _library().engine_advance(ctypes.byref(state.raw), ctypes.byref(load.raw), ctypes.byref(segment.raw))


def regroup(state: Any, load: Any, segment: Any, core_owner: NDArray[Any], group_of: NDArray[Any]) -> None:
    """Give cores [cores] and models [models] other groups: what runs ends where it runs, what waits moves along."""
    owners = np.ascontiguousarray(core_owner, np.int32)
    groups = np.ascontiguousarray(group_of, np.int32)
    if owners.shape != state.core_owner.shape or groups.shape != state.group_of.shape:
        raise ValueError(f"regroup: {owners.shape} and {groups.shape} found, expected one group per core and model")
    _library().engine_regroup(
        ctypes.byref(state.raw),
        ctypes.byref(load.raw),
        ctypes.byref(segment.raw),
        ctypes.c_void_p(owners.ctypes.data),
        ctypes.c_void_p(groups.ctypes.data),
    )


def bucket_edges_us() -> Floats:
    """Return the upper edge of each bucket of a latency histogram [µs]; they are 1.1 to 1.6 % wide."""
    one = int(np.array([1.0]).view(np.int64)[0]) >> 46
    return (np.arange(one + 1, one + BUCKETS + 1, dtype=np.int64) << 46).view(np.float64)
