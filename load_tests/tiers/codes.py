# SPDX-License-Identifier: Apache-2.0
"""`codes` and `code_lookups`: what tables of binary codes cost, in AUC and in time, as cases of `bench_tiers`."""

from __future__ import annotations

from typing import Any

from load_tests.elastic import binary_codes, code_lookups
from load_tests.elastic.planted_study import QUICK_USERS, SEEDS, USERS
from load_tests.tiers.setup import Setup

__all__ = ["measure", "measure_lookups"]


def measure(setup: Setup) -> dict[str, Any]:
    """Return the figures of load_tests/elastic/binary_codes.py."""
    users, seeds = (QUICK_USERS, 1) if setup.quick else (USERS, SEEDS)
    figures: dict[str, Any] = binary_codes.measure(binary_codes.setting_for(users), users, seeds)
    return figures


def measure_lookups(setup: Setup) -> dict[str, Any]:
    """Return the figures of load_tests/elastic/code_lookups.py."""
    return code_lookups.measure(code_lookups.QUICK_KEYS, 2, 0.05) if setup.quick else code_lookups.measure()
