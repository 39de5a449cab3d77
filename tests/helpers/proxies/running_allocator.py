# SPDX-License-Identifier: Apache-2.0
"""An allocator of cores with a clock and steady requests, for tests."""

from __future__ import annotations

from cost_model.control import Move, Observation
from cost_model.machine import Machine
from serving_proxy.cores.allocator import Allocator, Mode
from serving_proxy.cores.tenants import DeployedTenant

BASELINE = DeployedTenant("ranking/3", "ranking", 3, "baseline", 20.0, "/models/3")
VARIANTS = [DeployedTenant(f"ranking/{n}", "ranking", n, "variant", 20.0, f"/models/{n}", "ranking/3") for n in (4, 5)]
ALL = [BASELINE, *VARIANTS]


class Running:
    """An allocator, a clock, and requests that come at a steady rate."""

    def __init__(self, cores: int, mode: Mode = "control") -> None:
        self.allocator = Allocator(mode)
        self.machine = Machine.even(cores)
        self.now = 1000.0
        self.tenants = ALL
        self.moves: list[Move] = []

    def run(
        self, seconds: int, us: float | dict[str, float] = 1000.0, missed: float = 0.0, most: int = 10**9, **rates: int
    ) -> None:
        """Let seconds pass; `v4=100` are the requests/s of version 4, of which at most `most` are answered."""
        for _ in range(seconds):
            self.now += 1.0
            self.moves += self.allocator.deploy(self.tenants, self.machine, {}, self.now)
            seen = {}
            for key, rate in rates.items():
                name = f"ranking/{key[1:]}"
                each = us if isinstance(us, float) else us[name]
                ran = min(rate, most)
                seen[name] = Observation(rate, ran, 0, int(missed * rate), busy_us=ran * each)
            self.moves += self.allocator.observe(seen, self.now, 1.0)

    def sizes(self) -> dict[str, int]:
        return {name: len(cores) for name, cores in self.allocator.cores.items()}

    def judge(self, seconds: int, missed: dict[str, int], **rates: int) -> None:
        """Let seconds pass in which this many requests of each version miss their SLO."""
        for _ in range(seconds):
            self.now += 1.0
            seen = {}
            for key, rate in rates.items():
                late = missed.get(key, 0)
                seen[f"ranking/{key[1:]}"] = Observation(rate, rate, missed=late, busy_us=rate * 1000.0)
            self.moves += self.allocator.observe(seen, self.now, 1.0)
