# SPDX-License-Identifier: Apache-2.0
"""The limits that an operator sets for a model's versions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving_proxy.records.option import CliOption

Percentage = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=1, le=30 * 86400, allow_inf_nan=False)]


class GuardSettings(BaseModel):
    """Limits of a model's versions, and the action if one is exceeded. Null: the limit is not checked.

    The limit of the 99th percentile is the `slo_p99_ms` with which the version was deployed; in addition, a variant
    must be slower than its baseline.

    Attributes
    ----------
    action : str
        `rollback` removes the version's traffic, or returns from a new baseline to the last good one; `epoch` first
        returns a version that follows a timeline to its last good epoch; `pause` sends everything to the baseline;
        `alert` only reports; `off` does not judge.
    error_percent : float or None [%]
        Failed requests, in excess of the baseline's at the same time.
    nan_percent : float or None [%]
        NaN or infinite scores, in excess of the baseline's.
    min_correlation : float or None
        Mean rank correlation of shadow scores with the baseline's.
    max_difference : float or None
        Mean absolute difference of shadow scores from the baseline's.
    min_requests : int
        With fewer requests in the window, nothing is judged.
    window_s : float [s]
    confidence : float
        Confidence that is required to call a limit exceeded.
    probation_s : float [s]
        A baseline is rolled back within this time after its promotion; later it is only reported.
    promote_after_s : float or None [s]
        A variant that was within its limits for this time becomes the baseline. Null: it is never promoted
        automatically.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    action: Annotated[
        Literal["rollback", "epoch", "pause", "alert", "off"],
        CliOption("rollback|epoch|pause|alert|off", "Action for a version that exceeds a limit."),
    ] = "rollback"
    error_percent: Annotated[
        Percentage | None,
        CliOption("PERCENT", "Largest share of failed requests, in excess of the baseline's.", nullable=True),
    ] = 1.0
    nan_percent: Annotated[
        Percentage | None,
        CliOption("PERCENT", "Largest share of NaN and infinite scores, in excess of the baseline's.", nullable=True),
    ] = 0.1
    min_correlation: Annotated[
        Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] | None,
        CliOption("R", "Smallest rank correlation of shadow scores with the baseline's.", nullable=True),
    ] = None
    max_difference: Annotated[
        Annotated[float, Field(ge=0, allow_inf_nan=False)] | None,
        CliOption("X", "Largest mean difference of shadow scores from the baseline's.", nullable=True),
    ] = None
    min_requests: Annotated[
        int,
        Field(ge=20, le=1_000_000_000),
        CliOption("N", "Number of requests in the window that a verdict needs."),
    ] = 200
    window_s: Annotated[
        float,
        Field(ge=5, le=86400, allow_inf_nan=False),
        CliOption("TIME", "Length of the window whose requests are judged.", name="window", is_duration=True),
    ] = 60.0
    confidence: Annotated[
        float, Field(ge=0.9, le=0.999999), CliOption("P", "Confidence that is required to call a limit exceeded.")
    ] = 0.999
    probation_s: Annotated[
        float,
        Field(ge=0, le=30 * 86400, allow_inf_nan=False),
        CliOption(
            "TIME",
            "Time after a promotion within which the new baseline may be rolled back.",
            name="probation",
            is_duration=True,
        ),
    ] = 3600.0
    promote_after_s: Annotated[
        Seconds | None,
        CliOption(
            "TIME",
            "Promote a variant that has been within its limits for this time.",
            name="promote-after",
            nullable=True,
            is_duration=True,
        ),
    ] = None
