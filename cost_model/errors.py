# SPDX-License-Identifier: Apache-2.0
"""What can go wrong; messages read `<object>: <what was found>, expected <what>`.

That no allocation meets an objective is no error: a plan says so (`Plan.feasible`) and still protects the baseline.
"""

from __future__ import annotations


class CostModelError(Exception):
    """Parent of every error of this package."""

    exit_code = 2


class WorkloadError(CostModelError, ValueError):
    """A workload file has a member that is missing, unknown or out of range."""


class MachineError(CostModelError, ValueError):
    """A machine has no such CPU, or the CPU is offline or may not be used."""


class ProfileError(CostModelError, ValueError):
    """A profile is damaged, incomplete, or was taken on another CPU model."""


class UsageError(CostModelError, ValueError):
    """An option names what is not there or contradicts another."""
