# SPDX-License-Identifier: Apache-2.0
"""Send traffic that moves among a baseline and its variants, and judge the p99 of each model."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from load_tests.latencies import Latencies, percentile
from load_tests.loadgen import CONNECTIONS, report_of, start_loadgen

__all__ = ["PHASES", "SLOW", "SLOW_FACTOR", "VERSIONS", "Judged", "Phase", "Timing", "judge_model", "met", "send_phase"]

#: The baseline, then four variants.
VERSIONS = (1, 2, 3, 4, 5)
#: The variant that slows down: its requests then have this many times the rows.
SLOW, SLOW_FACTOR = 5, 12
#: Part of a model's requests that may be late or fail.
_MISSES = 0.01
_DRAIN_S = 60.0
#: How long the slow variant may answer what is left. A generator that has just begun also learns to handle signals.
_SLOW_DRAIN_S = 2.0


@dataclass(frozen=True)
class Phase:
    """Describe a period of traffic.

    Attributes
    ----------
    shares : tuple of float
        Part of all requests that each version receives.
    slow : bool
        Whether `SLOW` is slow. It then misses its SLO even alone, so it is not judged; its effect on others is.
    """

    name: str
    shares: tuple[float, ...]
    slow: bool = False


PHASES = (
    Phase("a variant slows down", (0.5, 0.125, 0.125, 0.125, 0.125), slow=True),
    Phase("the baseline is busier", (0.65, 0.0875, 0.0875, 0.0875, 0.0875)),
    Phase("a variant is busier", (0.35, 0.35, 0.1, 0.1, 0.1)),
)


@dataclass(frozen=True)
class Timing:
    """Define how long a phase is sent before it is judged, and how long it is judged [s]."""

    settle_s: float
    judged_s: float


@dataclass(frozen=True)
class Judged:
    """Contain what one model received in a phase.

    Attributes
    ----------
    late : float
        Part of the requests that were answered after the SLO, or failed.
    late_us : float
        p99 of how late requests were sent, compared with their due time, by which they are judged.
    """

    requests: int
    failed: dict[str, int]
    late: float
    p50_us: float
    p99_us: float
    late_us: float
    judged: bool

    @property
    def met(self) -> bool:
        """Return whether the model met its SLO, or is not judged."""
        return not self.judged or self.late <= _MISSES

    def to_json(self) -> dict[str, Any]:
        """Return it in the format of a result file."""
        return asdict(self)


def send_phase(
    address: str,
    requests: Mapping[tuple[int, bool], Path],
    phase: Phase,
    rate: float,
    timing: Timing,
    slo_us: float,
    cpu: int,
    seed: int,
) -> dict[int, Judged]:
    """Send a phase to a host, with one generator for each version, and judge each version.

    Parameters
    ----------
    requests : mapping of (version, slow) to Path
    rate : float [requests/s]
        Of all versions together; arrivals are Poisson.
    cpu : int
        CPU of the generators.

    Raises
    ------
    ProgramError
        If a generator failed, not only a request.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for version, share in zip(VERSIONS, phase.shares, strict=True):
            samples = Path(folder) / f"samples-{version}"
            process = start_loadgen(
                address,
                requests[version, phase.slow and version == SLOW],
                cpu=cpu,
                clients=CONNECTIONS,
                rate=rate * share,
                seed=seed + version,
                warmup=f"{timing.settle_s:g}s",
                time=f"{timing.judged_s:g}s",
                timeout="10s",
                samples=samples,
            )
            started.append((version, process, samples))
        found = {}
        # The slow variant is the last one: it may have many requests left, which nobody judges.
        started.sort(key=lambda each: phase.slow and each[0] == SLOW)
        try:
            for version, process, samples in started:
                judged = not (phase.slow and version == SLOW)
                if not judged:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_SLOW_DRAIN_S)
                    process.send_signal(signal.SIGINT)
                report = report_of(process, timing.settle_s + timing.judged_s + _DRAIN_S)
                taken = Latencies.read(samples, 0.0).every()
                found[version] = judge_model(report, taken, slo_us, judged)
        except BaseException:
            for _, process, _ in started:
                process.kill()
                process.wait()
            raise
    return found


def judge_model(report: dict[str, Any], taken: np.ndarray[Any, Any], slo_us: float, judged: bool) -> Judged:
    """Return what a model received, from its generator's report and the latencies of all answers [µs]."""
    failed = sum(report["failed"].values())
    count = int(taken.size) + failed
    late = (int(np.count_nonzero(taken > slo_us)) + failed) / count if count else 1.0
    p50, p99 = (percentile(taken, level) if taken.size else float("inf") for level in (50, 99))
    return Judged(count, report["failed"], late, p50, p99, report["late_us"]["p99"], judged)


def met(found: Mapping[int, Judged]) -> bool:
    """Return whether every judged model met its SLO."""
    return all(model.met for model in found.values())
