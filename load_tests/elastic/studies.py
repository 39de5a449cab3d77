# SPDX-License-Identifier: Apache-2.0
"""`lasso` and `admission`: the studies of those modules as cases."""

from __future__ import annotations

from typing import Any

from load_tests.elastic import admission, lasso
from load_tests.elastic.planted_study import QUICK_USERS, SEEDS, USERS
from load_tests.elastic.setup import Setup

__all__ = ["measure_admission", "measure_lasso"]


def measure_lasso(setup: Setup) -> dict[str, Any]:
    """Return the figures of lasso.py: of one seed, with `setup.full` of all."""
    users = QUICK_USERS if setup.quick else USERS
    figures: dict[str, Any] = lasso.measure(lasso.Setting(), users, SEEDS if setup.full else 1)
    return figures


def measure_admission(setup: Setup) -> dict[str, Any]:
    """Return the figures of admission.py."""
    figures: dict[str, Any] = admission.measure(setup.quick)
    return figures
