# SPDX-License-Identifier: Apache-2.0
"""Decide which model gets which cores, and explain why."""

from cost_model.planning.addition import Addition, plan_addition
from cost_model.planning.allocation import Allocation, Plan
from cost_model.planning.explain import Explanation, explain
from cost_model.planning.planner import plan

__all__ = ["Addition", "Allocation", "Explanation", "Plan", "explain", "plan", "plan_addition"]
