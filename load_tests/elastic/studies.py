# SPDX-License-Identifier: Apache-2.0
"""`lasso` and `admission`: the studies of those modules as cases; one seed, and with --full all of them."""

from __future__ import annotations

from typing import Any

from load_tests._report import Target
from load_tests.elastic import admission, lasso
from load_tests.elastic.setup import Setup

__all__ = ["judge_admission", "judge_lasso", "measure_admission", "measure_lasso"]


def measure_lasso(setup: Setup) -> dict[str, Any]:
    """Return the figures of lasso.py."""
    users = lasso.QUICK_USERS if setup.quick else lasso.USERS
    figures: dict[str, Any] = lasso.measure(lasso.Setting(), users, lasso.SEEDS if setup.full else 1)
    return figures


def judge_lasso(case: dict[str, Any]) -> list[Target]:
    """Return the targets of lasso.py."""
    return lasso.judge(case)


def measure_admission(setup: Setup) -> dict[str, Any]:
    """Return the figures of admission.py."""
    figures: dict[str, Any] = admission.measure(setup.quick, None if setup.full else 1)
    return figures


def judge_admission(case: dict[str, Any]) -> list[Target]:
    """Return the targets of admission.py."""
    return admission.judge(case)
