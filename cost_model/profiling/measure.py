# SPDX-License-Identifier: Apache-2.0
"""Run a model through libprocessor and measure its times."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_model.cpu_time import Watch
from cost_model.errors import ProfileError
from cost_model.machine import cpu_ranges
from cost_model.profiling.fingerprint import fingerprint
from cost_model.profiling.profile import BUSY, Profile, cpu_model, load_profile
from cost_model.service import Floats

Inputs = dict[str, "np.ndarray[Any, Any]"]
Progress = Callable[[str], None]
Clock = Callable[[], int]
_WARM = 20
_LEAST = 50
# How long to watch other processes before measuring.
_LOOK_S = 0.5
# How far one check point may differ from a reused profile.
_SAME = 0.15


def profile_model(
    model: Path,
    cpus: Sequence[int],
    rows: Sequence[int],
    cores: Sequence[int],
    *,
    out: Path | None = None,
    reuse: Path | None = None,
    records: Mapping[str, np.ndarray[Any, Any]] | None = None,
    seconds: float = 1.5,
    progress: Progress = lambda _: None,
    set_total: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    beside: bool = False,
) -> Profile:
    """Measure a model, or the points that `out` still lacks.

    Parameters
    ----------
    model : Path
        SavedModel.
    cpus : sequence of int
        CPUs to measure on: a session of one core uses the first of them, and so on.
    rows, cores : sequence of int
    out : Path, optional
        Written after every point; points in it for this graph and CPU model are not measured again.
    reuse : Path, optional
        A profile of the same graph with other weights. One check point decides whether it is still valid.
    records : mapping of str to array [n, ...], optional
        Recorded inputs, repeated or cut to each number of rows; by default inputs are generated from the signature.
    seconds : float [s]
        Duration of each point.
    progress : callable
        Called with a description of each step when it begins.
    set_total : callable
        Called with the number of calls of `progress` that remain.
    warn : callable
        Called with a warning if the figures are unreliable because other processes use the CPUs.
    beside : bool
        Other processes run on these CPUs: measure the processor time of this process, which equals that of a request as
        long as one thread runs it. The cost of sharing is not measured, and the use by others is not watched.

    Raises
    ------
    ProfileError
        If the profile in `out` or `reuse` is of another graph, or no request can be generated.
    """
    _check_cores(cores, cpus, beside)
    method = _Method(model, cpus, seconds, watched=not beside)
    profile = _earlier_profile(model, out)
    if not beside and (profile.missing(list(cores), list(rows)) or not profile.interference):
        _look_before(profile, cpus[: max(cores)], seconds, warn)
    make = _requests(model, cpus, records)
    if reuse is not None and not profile.points:
        profile = _reused_profile(method, reuse, make, profile, progress)
    missing = profile.missing(list(cores), list(rows))
    sharing = not profile.interference and not beside
    set_total(len(missing) + sharing)
    for count, size in missing:
        progress(f"{size} rows on {count} {'core' if count == 1 else 'cores'}")
        _measure_point(method, profile, count, size, make)
        if out is not None:
            profile.save(out)
    if sharing:
        progress("interference")
        _measure_interference(method, profile, make(sorted(rows)[len(rows) // 2]))
    if out is not None:
        profile.save(out)
    if (missing or sharing) and (profile.busy_during or 0.0) > BUSY:
        warn(f"other processes used up to {profile.busy_during:.0%} of the CPUs: measure again on a quiet machine")
    return profile


@dataclass(frozen=True)
class _Method:
    """Contain what all points have in common; `watched`: no other process may use the CPUs meanwhile."""

    model: Path
    cpus: Sequence[int]
    seconds: float
    watched: bool

    @property
    def clock(self) -> Clock:
        return time.perf_counter_ns if self.watched else time.process_time_ns


def _check_cores(cores: Sequence[int], cpus: Sequence[int], beside: bool) -> None:
    if not cpus or max(cores) > len(cpus):
        raise ProfileError(f"--cores: {max(cores)} found, expected at most the {len(cpus)} CPUs of --cpus")
    if beside and max(cores) > 1:
        raise ProfileError(f"--cores: {max(cores)} found, expected 1 if other processes use the CPUs")


def _measure_point(method: _Method, profile: Profile, cores: int, rows: int, make: Callable[[int], Inputs]) -> None:
    before = _resident_mb()
    with _load(method.model, method.cpus[:cores]) as loaded:
        profile.memory_mb = max(profile.memory_mb, _resident_mb() - before)
        watch = Watch(method.cpus[:cores])
        profile.add(cores, rows, _times_us(loaded, make(rows), method.seconds, clock=method.clock))
        if method.watched:
            profile.busy_during = max(profile.busy_during or 0.0, watch.others())


def _measure_interference(method: _Method, profile: Profile, inputs: Inputs) -> None:
    watch = Watch(method.cpus[:2])
    profile.interference = _interference(method.model, method.cpus, inputs, method.seconds)
    profile.busy_during = max(profile.busy_during or 0.0, watch.others())


def _reused_profile(
    method: _Method, path: Path, make: Callable[[int], Inputs], profile: Profile, progress: Progress
) -> Profile:
    """Return the profile of another model with the same graph if a check point confirms it, otherwise `profile`."""
    reused = load_profile(path)
    if reused.fingerprint != profile.fingerprint:
        raise ProfileError(f"{path}: a profile of another graph found, expected one of {profile.fingerprint}")
    progress("check point")
    if not any(count == 1 for count, _ in reused.points):
        raise ProfileError(f"{path}: no times for 1 core found, expected them for a check point")
    return reused if _agrees(method, make, reused) else profile


def _look_before(profile: Profile, cpus: Sequence[int], seconds: float, warn: Callable[[str], None]) -> None:
    """Watch the CPUs before our own work runs on them, and warn if other processes use them."""
    watch = Watch(cpus)
    time.sleep(min(_LOOK_S, seconds))
    share = watch.others()
    profile.busy_before = max(profile.busy_before or 0.0, share)
    if share > BUSY:
        warn(f"other processes use {share:.0%} of CPUs {cpu_ranges(sorted(cpus))}: service times will be too long")


def _earlier_profile(model: Path, out: Path | None) -> Profile:
    """Return the profile of an earlier run, or a new one."""
    new = Profile(fingerprint(model), cpu_model())
    if out is None or not out.exists():
        return new
    old = load_profile(out)
    if old.fingerprint != new.fingerprint:
        raise ProfileError(f"{out}: a profile of another graph found, expected one of {new.fingerprint}, or no file")
    return old


def _load(model: Path, cpus: Sequence[int]) -> Any:
    from processor import Model

    cpuset = ",".join(map(str, cpus))
    return Model(model, {"session_num": 1, "cpusets": cpuset, "intra_op_parallelism_threads": len(cpus)})


def _requests(
    model: Path, cpus: Sequence[int], records: Mapping[str, np.ndarray[Any, Any]] | None
) -> Callable[[int], Inputs]:
    """Return a function that makes a request with a given number of rows."""
    with _load(model, cpus[:1]) as loaded:
        (signature,) = [candidate for candidate in loaded.signatures.values() if candidate.is_default][:1] or list(
            loaded.signatures.values()
        )[:1]
    specs = signature.inputs
    if records is not None and set(records) != set(specs):
        raise ProfileError(f"--requests: inputs {sorted(records)} found, expected {sorted(specs)}")

    def make(rows: int) -> Inputs:
        if records is not None:
            return {name: np.resize(record, (rows, *record.shape[1:])) for name, record in records.items()}
        rng = np.random.default_rng(rows)
        return {name: _generate_input(spec, rows, rng) for name, spec in specs.items()}

    return make


def _generate_input(spec: Any, rows: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Generate values for an input: the first open dimension is the rows, all others are 1."""
    shape = list(spec.shape or ())
    open_ones = [place for place, size in enumerate(shape) if size < 0]
    for place in open_ones:
        shape[place] = rows if place == open_ones[0] else 1
    if spec.dtype == np.dtype(object):
        return np.array(
            [str(integer).encode() for integer in rng.integers(0, 1000, int(np.prod(shape)))], object
        ).reshape(shape)
    if spec.dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(spec.dtype)
    return rng.random(shape).astype(spec.dtype)


def _times_us(
    loaded: Any,
    inputs: Inputs,
    seconds: float,
    between: Callable[[], None] | None = None,
    clock: Clock = time.perf_counter_ns,
) -> Floats:
    """Time requests one after another; between two of them, `between` is called and not timed."""
    times, end = [], time.monotonic() + seconds
    for number in range(1 << 20):
        if between is not None:
            between()
        start = clock()
        loaded.run(inputs)
        taken = clock() - start
        if number >= _WARM:
            times.append(taken / 1e3)
        if len(times) >= _LEAST and time.monotonic() > end:
            break
    return np.array(times)


def _agrees(method: _Method, make: Callable[[int], Inputs], profile: Profile) -> bool:
    """Measure one point of a profile again and return whether its median is still valid."""
    rows = sorted(r for c, r in profile.points if c == 1)
    size = rows[len(rows) // 2]
    with _load(method.model, method.cpus[:1]) as loaded:
        median = float(np.median(_times_us(loaded, make(size), method.seconds, clock=method.clock)))
    known = profile.points[1, size][6]
    return abs(median / known - 1) <= _SAME


def _interference(model: Path, cpus: Sequence[int], inputs: Inputs, seconds: float) -> dict[str, float]:
    """Measure two copies of a model: in turn and at the same time on one core, and at the same time on two cores."""
    found = {}
    with _load(model, cpus[:1]) as first, _load(model, cpus[:1]) as second:
        alone = _times_us(first, inputs, seconds)
        turns = _times_us(first, inputs, seconds, lambda: second.run(inputs))
        found["switch"] = slow_down(turns, alone, np.median)
        # Each copy has half of the core, so twice the time means no cost.
        # The mean is used because time slices affect only some requests.
        found["shared_cache"] = slow_down(_at_once(first, second, inputs, seconds) / 2, alone, np.mean)
        if len(cpus) > 1:
            second.set_cpuset(str(cpus[1]))
            found["side_by_side"] = slow_down(_at_once(first, second, inputs, seconds), alone, np.mean)
    return found


def slow_down(times_us: Floats, alone_us: Floats, middle: Callable[[Floats], Any]) -> float:
    """Return how much longer requests take than alone (at least 0), by their median or mean."""
    return max(0.0, float(middle(times_us)) / float(middle(alone_us)) - 1)


def _at_once(first: Any, second: Any, inputs: Inputs, seconds: float) -> Floats:
    """Time requests [µs] of the first model while the second is never idle."""
    done = threading.Event()

    def busy() -> None:
        while not done.is_set():
            second.run(inputs)

    beside = threading.Thread(target=busy)
    beside.start()
    try:
        return _times_us(first, inputs, seconds)
    finally:
        done.set()
        beside.join()


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6
