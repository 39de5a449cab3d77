# SPDX-License-Identifier: Apache-2.0
"""What models cost each other on one machine, beyond waiting.

The coefficients are measured by `cost-model profile` (two models in turn on one core, and side by side on two cores).
Every figure that depends on them is to be shown at half and at double of them: `Interference.scaled`.
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
    r"""How much longer a request takes because of other models.

    The multipliers, (a) to (c), apply to the mean of the service time and leave its coefficient of variation as it is.

    Parameters
    ----------
    switch : float
        (a) Slow-down of a request whose core has just served another model (caches, TLB, branch history). With
        models of rates :math:`\lambda_i` in a pool, a request of model i follows another model's with probability
        :math:`1 - \lambda_i/\sum\lambda`.
    shared_cache : float
        (b) Slow-down per runnable session beyond one on a core: time slices, and refills within a request. The
        simulator applies it where nothing is pinned; a plan's pool counts as one queue, which runs one request at a
        time on a core.
    bandwidth : float
        (c) Slow-down per unit of memory traffic above the knee: with a node's traffic at u times its bandwidth,
        the factor is :math:`1 + b\,\max(0, u - k)/(1 - k)`, and at least u above 1, as nothing gets more than there is.
    knee : float
        Part of the bandwidth from which on latency of memory rises (k).
    idle_start_us : float [µs]
        (d) How much longer a request takes whose core was idle when it came: the core sleeps, and others have used its
        caches. A time and no factor: waking and filling caches take as long before 1 row as before 64. 0 unless a
        calibration says otherwise: service times of a workload file count as those of busy cores.
    guessed : bool
        Nothing was measured: the file that is shipped with the package is not there. Plans say so.
    """

    switch: float = 0.06
    shared_cache: float = 0.10
    bandwidth: float = 0.35
    knee: float = 0.6
    idle_start_us: float = 0.0
    guessed: bool = field(default=False, compare=False)

    def scaled(self, factor: float) -> Interference:
        """Return coefficients of so many times the size; the knee, a place and no size, stays.

        So does `idle_start_us`, which no other model causes.
        """
        return replace(
            self,
            switch=self.switch * factor,
            shared_cache=self.shared_cache * factor,
            bandwidth=self.bandwidth * factor,
        )

    def switch_factor(self, own_part: Floats) -> Floats:
        """Return the factors for models with these parts of their pool's requests."""
        return 1 + self.switch * (1 - own_part)

    def bandwidth_factor(self, utilisation: float) -> float:
        """Return the factor on a node whose memory traffic is so many times its bandwidth."""
        contended = 1 + self.bandwidth * max(0.0, utilisation - self.knee) / (1 - self.knee)
        return max(contended, utilisation)


NONE = Interference(0.0, 0.0, 0.0)


def default_interference() -> Interference:
    """Return the coefficients that were measured last and are shipped with the package, or guesses without them."""
    return load_interference(MEASURED) if MEASURED.exists() else Interference(guessed=True)


def load_interference(path: Path, base: Interference | None = None) -> Interference:
    """Read coefficients from a JSON file: one of coefficients, a profile or a calibration.

    Parameters
    ----------
    path : Path
    base : Interference, optional
        Has the coefficients that the file lacks.

    Raises
    ------
    ProfileError
        It cannot be read, has no coefficient, or one that is negative.
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
