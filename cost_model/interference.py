# SPDX-License-Identifier: Apache-2.0
"""Describe how much models slow each other down on one machine, in addition to waiting.

The coefficients are measured by `cost-model profile` (two models in turn on one core, and at once on two cores).
Show every figure that depends on them also with half and with double the coefficients: `Interference.scaled`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cost_model._reading import Reader
from cost_model.errors import ProfileError
from cost_model.service import Floats

MEASURED = Path(__file__).parent / "scenarios" / "interference.json"
COEFFICIENTS = ("switch", "shared_cache", "bandwidth", "knee", "idle_start_us")


@dataclass(frozen=True)
class Interference:
    r"""Describe how much longer a request takes because of other models.

    The multipliers (a) to (c) apply to the mean of the service time and do not change its coefficient of variation.

    Parameters
    ----------
    switch : float
        (a) Slow-down of a request whose core has just served another model (caches, TLB, branch history). If the
        models of a pool have rates :math:`\lambda_i`, a request of model i follows another model's request with
        probability :math:`1 - \lambda_i/\sum\lambda`.
    shared_cache : float
        (b) Slow-down per runnable session beyond one on a core: time slices, and cache refills within a request. The
        simulator applies it if nothing is pinned. A plan treats a pool as one queue, in which a core runs one request
        at a time.
    bandwidth : float
        (c) Slow-down per unit of memory traffic above the knee: with a node's traffic at u times its bandwidth,
        the factor is :math:`1 + b\,\max(0, u - k)/(1 - k)`, and at least u above 1, since traffic cannot exceed it.
    knee : float
        Part of the bandwidth above which memory latency rises (k).
    idle_start_us : float [µs]
        (d) How much longer a request takes if its core was idle when it arrived: the core sleeps, and other programs
        have used its caches. This is a time, not a factor: waking and filling caches take equally long before 1 row and
        before 64. 0 unless a calibration sets it: service times of a workload file are taken as those of busy cores.
    guessed : bool
        Nothing was measured: the file that the package contains is missing. Plans report this.
    """

    switch: float = 0.06
    shared_cache: float = 0.10
    bandwidth: float = 0.35
    knee: float = 0.6
    idle_start_us: float = 0.0
    guessed: bool = field(default=False, compare=False)

    def scaled(self, factor: float) -> Interference:
        """Return coefficients multiplied by a factor; the knee is a position, not a size, and does not change.

        `idle_start_us` does not change either, because other models do not cause it.
        """
        return replace(
            self,
            switch=self.switch * factor,
            shared_cache=self.shared_cache * factor,
            bandwidth=self.bandwidth * factor,
        )

    def switch_factor(self, own_part: Floats) -> Floats:
        """Return the factors for models that send these parts of their pool's requests."""
        return 1 + self.switch * (1 - own_part)

    def bandwidth_factor(self, utilisation: float) -> float:
        """Return the slow-down on a node for a memory traffic of `utilisation` times its bandwidth."""
        contended = 1 + self.bandwidth * max(0.0, utilisation - self.knee) / (1 - self.knee)
        return max(contended, utilisation)


NONE = Interference(0.0, 0.0, 0.0)


def default_interference() -> Interference:
    """Return the measured coefficients that the package contains, or guesses if the file is missing."""
    return load_interference(MEASURED) if MEASURED.exists() else Interference(guessed=True)


def load_interference(path: Path, base: Interference | None = None) -> Interference:
    """Read coefficients from a JSON file: a file of coefficients, a profile or a calibration.

    Parameters
    ----------
    path : Path
    base : Interference, optional
        Provides the coefficients that the file lacks.

    Raises
    ------
    ProfileError
        If it cannot be read, has no coefficient, or has a negative one.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path}: {error}, expected JSON with coefficients of interference") from error
    reader = Reader(str(path), data.get("interference", data) if isinstance(data, dict) else data, ProfileError)
    found = {name: reader.number(name, most=0.95 if name == "knee" else 1e3) for name in COEFFICIENTS if name in reader}
    if not found:
        raise ProfileError(f"{path}: no coefficient of interference found, expected one of {', '.join(COEFFICIENTS)}")
    return replace(base or Interference(), guessed=False, **found)
