# SPDX-License-Identifier: Apache-2.0
"""Call the compiled event loop: the structs of `engine.cc` over NumPy arrays.

Time is in microseconds. A request is one task, or several if the threads of a session divide its rows; each task uses a
whole core until it ends, or for a slice if threads take turns. A core that becomes free takes the oldest task of the
group (allocation) that owns it. If there is none and the core may be lent, it takes a task of the group whose oldest
task has used most of its SLO.
"""

from __future__ import annotations

import ctypes
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_model.errors import CostModelError

TABLE = 16384
"""Number of values in a quantile table."""
QUEUE = 8192
"""Capacity of a group's queue [tasks]."""
BUCKETS_PER_OCTAVE = 64
BUCKETS = 25 * BUCKETS_PER_OCTAVE
NEVER = float("inf")
Floats = NDArray[np.float64]

# C types of numeric members, and dtypes of the elements of array members.
_C_TYPES = {"int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double}
_ELEMENTS = {"int64_t": "i8", "double": "f8", "int32_t": "i4", "uint8_t": "u1"}
# The structs of which arrays consist; the other structs contain numbers and arrays.
_ROWS = {"Task", "Running"}


def _members(body: str) -> list[tuple[str, str, bool]]:
    """Split the members of a C struct into (name, type, whether it is an array)."""
    members = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        c_type, names = re.fullmatch(r"(?:const )?(\w+)(.+)", declaration).groups()  # type: ignore[union-attr]
        for name in names.split(","):
            members.append((name.strip(" *"), c_type, "*" in name))
    return members


@functools.cache
def _structs() -> dict[str, list[tuple[str, Any, np.dtype[Any] | None]]]:
    """Read the structs from the library: for each name its members, with C type and, for an array, its dtype."""
    text = _library().engine_structs().decode()
    elements: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, kind in _ELEMENTS.items()}
    structs: dict[str, list[tuple[str, Any, np.dtype[Any] | None]]] = {}
    for name, body in re.findall(r"(\w+)\{(.*?)\}", text):
        members = _members(body)
        if name in _ROWS:
            elements[name] = np.dtype([(member, elements[c_type]) for member, c_type, _ in members])
        else:
            structs[name] = [
                (member, ctypes.c_void_p, elements[c_type]) if is_array else (member, _C_TYPES[c_type], None)
                for member, c_type, is_array in members
            ]
    return structs


class _Struct:
    """Hold a C struct and the arrays that it points to, each as an attribute.

    The arrays are copies, unless `own` says that nothing else uses those of `values`.
    """

    def __init__(self, name: str, values: dict[str, Any], own: bool = False) -> None:
        members = _structs()[name]
        differ = {member for member, *_ in members} ^ values.keys()
        if differ:
            raise CostModelError(
                f"{name}: the library and Python differ in {', '.join(sorted(differ))}; run `make build` again"
            )
        self.raw = type(name, (ctypes.Structure,), {"_fields_": [(member, c_type) for member, c_type, _ in members]})()
        self.arrays: dict[str, NDArray[Any]] = {}
        for member, _, dtype in members:
            if dtype is None:
                setattr(self.raw, member, values[member])
                continue
            self.arrays[member] = (np.asarray if own else np.array)(values[member], dtype, order="C")
            setattr(self.raw, member, self.arrays[member].ctypes.data)

    def __getattr__(self, name: str) -> Any:
        arrays = self.__dict__.get("arrays", {})
        return arrays[name] if name in arrays else getattr(self.__dict__["raw"], name)


def make_load(**values: Any) -> _Struct:
    """Create the description of requests; see `Load` in `engine.cc` for its members."""
    return _Struct("Load", {"models": len(values["fixed_us"]), **values})


def make_segment(**values: Any) -> _Struct:
    """Create the values that are constant until `end_us`; see `Segment` in `engine.cc` for its members."""
    return _Struct("Segment", values)


def make_state(core_nodes: NDArray[Any], models: int, groups: int, seed: int) -> _Struct:
    """Create the state of an idle machine; all cores and models belong to group 0 until `regroup`.

    Parameters
    ----------
    core_nodes : ndarray [cores] int
        NUMA node of each core.
    models, groups : int
    seed : int
    """
    cores, nodes, slots = len(core_nodes), int(max(core_nodes)) + 1, 4 * QUEUE
    sizes: dict[str, Any] = {
        **dict.fromkeys(("core_owner", "core_rate", "core_used_us", "core_task"), cores),
        **dict.fromkeys(("idle_count", "lends", "borrows", "oversubscribed", "lend_after_us"), groups),
        **dict.fromkeys(("queue_head", "queue_size"), groups),
        **dict.fromkeys(("slot_pending", "slot_failed"), slots),
        **dict.fromkeys(("group_of", "arrived", "completed", "dropped", "missed", "judged"), models),
        **dict.fromkeys(("busy_us", "alone_us", "borrowed_us", "latency_us", "in_system", "queued"), models),
        **dict.fromkeys(("pending_head", "pending_size", "active"), models),
        "heap": cores + 1,
        "node_rate": nodes,
        "idle": (groups, cores),
        "queue": (groups, QUEUE),
        "pending": (models, QUEUE),
        "histogram": (models, BUCKETS),
    }
    values: dict[str, Any] = {
        name: np.zeros(sizes[name], dtype) for name, _, dtype in _structs()["State"] if name in sizes
    }
    random = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    values |= {"cores": cores, "groups": groups, "nodes": nodes, "running": 0, "idle_total": 0, "queued_total": 0}
    values |= {"free_slots": slots, "slots": slots, "events": 0, "random": random, "now_us": 0.0, "hazard": -1.0}
    values["slice_us"] = 0.0
    values |= {name: np.full(cores, -1) for name in ("core_last", "core_model")}
    values |= {
        "core_node": core_nodes.astype(np.int32),
        "slot_free": np.arange(slots),
        "limit": np.full(models, 2**31 - 1),
    }
    # Without a copy, pages of queues and histograms that a run never reaches are never allocated.
    return _Struct("State", values, own=True)


@functools.cache
def _library() -> Any:
    path = Path(__file__).with_name("libcost_model_engine.so")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CostModelError(f"{path}: {error}, expected the simulator's event loop; `make lib` builds it") from error
    if not hasattr(library, "engine_structs"):
        raise CostModelError(f"{path}: made for another version of this package; build it again")
    library.engine_structs.restype = ctypes.c_char_p
    return library


def advance(state: Any, load: Any, segment: Any) -> None:
    """Run until the end of the segment; releases the interpreter's lock."""
    _library().engine_advance(ctypes.byref(state.raw), ctypes.byref(load.raw), ctypes.byref(segment.raw))


def regroup(state: Any, load: Any, segment: Any, core_owner: NDArray[Any], group_of: NDArray[Any]) -> None:
    """Assign cores [cores] and models [models] to other groups; running tasks stay, waiting tasks move."""
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
    first = int(np.array([1.0]).view(np.int64)[0]) >> 46
    return (np.arange(first + 1, first + BUCKETS + 1, dtype=np.int64) << 46).view(np.float64)
