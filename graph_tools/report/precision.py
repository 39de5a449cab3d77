# SPDX-License-Identifier: Apache-2.0
"""In what dense layers compute, and what was measured before it was decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, Difference, JsonSchema
from graph_tools.options import RequestedPrecision

PermittedPrecision = Annotated[str, JsonSchema(enum=["fp32", "bf16"])]
Arithmetic = Annotated[str, JsonSchema(enum=["bf16", "bf16 weights"])]


@dataclass
class Loss:
    """What bf16 costs an output.

    Attributes
    ----------
    max_difference : float
        Largest |fp32 - bf16|.
    rank_correlation_loss : float or None
        1 less Spearman's; None: no order, as of one value everywhere.
    auc_loss : float or None
        AUC in fp32 less that in bf16; None: no labels.
    problem : str or None
        What forbids bf16.
    """

    signature: str
    name: str
    max_difference: Difference
    rank_correlation_loss: float | None
    auc_loss: float | None
    problem: str | None


@dataclass
class Certificate:
    """What was measured, and with what.

    Attributes
    ----------
    max_difference : float
        Largest |fp32 - bf16| of all outputs.
    rank_correlation_loss : float or None
        1 less Spearman's correlation with the scores of fp32, of the output that loses most; None: no output has an
        order.
    auc_loss : float or None
        AUC in fp32 less that in bf16, of the output that loses most; None: no labels.
    limit : float
        What each output may lose of AUC, or of rank correlation where there are no labels.
    requests : int
        That both answered.
    cpu : str
        Model that was measured on.
    cpu_features : tuple of str
        Its instruction sets, as far as they matter here.
    arithmetic : str
        What bf16 was on this CPU; `bf16 weights`: only weights were rounded.
    """

    max_difference: Difference
    rank_correlation_loss: float | None
    auc_loss: float | None
    limit: float
    requests: Count
    rows: Count
    cpu: str
    cpu_features: tuple[str, ...]
    arithmetic: Arithmetic
    library_version: str | None
    tensorflow_version: str


@dataclass
class DecidedPrecision:
    """In what the dense layers of an artifact compute.

    Attributes
    ----------
    permitted : str
        `bf16`: where the CPU can, else `fp32`.
    forced : bool
        A CPU that cannot compute in bf16 refuses the model.
    certificate : Certificate or None
        None: not measured.
    """

    requested: RequestedPrecision
    permitted: PermittedPrecision
    forced: bool
    reason: str
    certificate: Certificate | None = None

    @property
    def attribute(self) -> str:
        """What the ops of the graph say."""
        if self.forced:
            return "bf16"
        return "auto" if self.permitted == "bf16" else "fp32"


@dataclass
class Precision(DecidedPrecision):
    """The same with the losses that led to it.

    Attributes
    ----------
    losses : list of Loss
        What bf16 costs each output.
    """

    losses: list[Loss] = field(default_factory=list)
