# SPDX-License-Identifier: Apache-2.0
"""Report the precision of dense layers, and the measurements behind the decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, Difference, JsonSchema
from graph_tools.options import RequestedPrecision

PermittedPrecision = Annotated[str, JsonSchema(enum=["fp32", "bf16"])]
Arithmetic = Annotated[str, JsonSchema(enum=["bf16", "bf16 weights"])]


@dataclass
class Loss:
    """Effect of bf16 on an output.

    Attributes
    ----------
    max_difference : float
        Largest |fp32 - bf16|.
    rank_correlation_loss : float or None
        1 minus Spearman's correlation; None: there is no order, for example if all values are equal.
    auc_loss : float or None
        AUC in fp32 minus AUC in bf16; None: no labels.
    problem : str or None
        Reason against bf16.
    """

    signature: str
    name: str
    max_difference: Difference
    rank_correlation_loss: float | None
    auc_loss: float | None
    problem: str | None


@dataclass
class Certificate:
    """The measurements, and the machine and versions they were made with.

    Attributes
    ----------
    max_difference : float
        Largest |fp32 - bf16| of all outputs.
    rank_correlation_loss : float or None
        1 minus Spearman's correlation with the scores of fp32, of the output that loses most; None: no output has an
        order.
    auc_loss : float or None
        AUC in fp32 minus AUC in bf16, of the output that loses most; None: no labels.
    limit : float
        Largest loss of AUC of each output, or of rank correlation if there are no labels.
    requests : int
        Requests that both precisions ran successfully.
    cpu : str
        Model of the CPU that was used.
    cpu_features : tuple of str
        Its instruction sets, as far as they matter here.
    arithmetic : str
        Arithmetic of bf16 on this CPU; `bf16 weights`: only weights were rounded.
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
    """Precision of the dense layers of an artifact.

    Attributes
    ----------
    permitted : str
        `bf16`: bf16 on CPUs that support it, else `fp32`.
    forced : bool
        True if CPUs that do not support bf16 refuse the model.
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
        """Value of the precision attribute of the graph's ops."""
        if self.forced:
            return "bf16"
        return "auto" if self.permitted == "bf16" else "fp32"


@dataclass
class Precision(DecidedPrecision):
    """A decided precision with the losses that led to it.

    Attributes
    ----------
    losses : list of Loss
        Effect of bf16 on each output.
    """

    losses: list[Loss] = field(default_factory=list)
