# SPDX-License-Identifier: Apache-2.0
"""Define the errors of this package; messages read `<object>: <what was found>, expected <what>`.

It is not an error if no allocation meets an SLO: the plan reports it (`Plan.feasible`) and still protects the baseline.
"""

from __future__ import annotations


class CostModelError(Exception):
    """Parent of every error of this package."""

    exit_code = 2


class WorkloadError(CostModelError, ValueError):
    """A member of a workload file is missing, unknown or out of range."""


class MachineError(CostModelError, ValueError):
    """The machine has no such CPU, or the CPU is offline or may not be used."""


class ProfileError(CostModelError, ValueError):
    """The profile is damaged, incomplete, or was taken on another CPU model."""


class UsageError(CostModelError, ValueError):
    """An option names an object that does not exist, or contradicts another option."""
