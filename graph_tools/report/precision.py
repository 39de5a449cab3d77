# SPDX-License-Identifier: Apache-2.0
"""Report the precision of dense layers, and the measurements behind the decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, Difference, JsonSchema
from graph_tools.options import RequestedPrecision

PermittedPrecision = Annotated[str, JsonSchema(enum=["fp32", "bf16", "int8"])]
WiderPrecision = Annotated[str, JsonSchema(enum=["fp32", "bf16"])]
Arithmetic = Annotated[str, JsonSchema(enum=["bf16", "bf16 weights", "int8"])]


@dataclass
class Loss:
    """Effect of a precision on an output.

    Attributes
    ----------
    max_difference : float
        Largest difference from fp32.
    rank_correlation_loss : float or None
        1 minus Spearman's correlation; None: there is no order, for example if all values are equal.
    auc_loss : float or None
        AUC in fp32 minus AUC in the other precision; None: no labels.
    problem : str or None
        Reason against the precision.
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
        Largest difference from fp32 of all outputs.
    rank_correlation_loss : float or None
        1 minus Spearman's correlation with the scores of fp32, of the output that loses most; None: no output has an
        order.
    auc_loss : float or None
        AUC in fp32 minus AUC in the other precision, of the output that loses most; None: no labels.
    limit : float
        Largest loss of AUC of each output, or of rank correlation if there are no labels.
    requests : int
        Requests that both precisions ran successfully.
    cpu : str
        Model of the CPU that was used.
    cpu_features : tuple of str
        Its instruction sets, as far as they matter here.
    arithmetic : str
        Arithmetic that was measured; `bf16 weights`: only weights were rounded.
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
class KeptLayer:
    """A dense layer that is more precise than int8, although the model computes in int8.

    Attributes
    ----------
    node : str
        The fused op.
    layer : int
        Number of the layer in the op's plan.
    weights : str
        Name of the layer's first weight.
    reason : str
        Loss with the layer in int8 and without.
    """

    node: str
    layer: Count
    weights: str
    precision: WiderPrecision
    reason: str


@dataclass
class DecidedInt8:
    """Whether dense layers may compute in int8.

    Attributes
    ----------
    certificate : Certificate or None
        Measured with the layers in `kept`, or, if int8 is not permitted, with all layers in int8. None: not measured.
    kept : list of KeptLayer
        Layers that are more precise, since they would lose too much.
    """

    permitted: bool
    reason: str
    certificate: Certificate | None = None
    kept: list[KeptLayer] = field(default_factory=list)


@dataclass
class Int8(DecidedInt8):
    """A decision on int8 with the losses that led to it.

    Attributes
    ----------
    losses : list of Loss
        Effect of int8 on each output.
    comparisons : int
        How often fp32 was compared with int8.
    """

    losses: list[Loss] = field(default_factory=list)
    comparisons: Count = 0


@dataclass
class WithoutInt8:
    """What CPUs without int8 arithmetic compute with, if int8 is permitted.

    Attributes
    ----------
    permitted : str
        `bf16`: bf16 on CPUs that support it, else `fp32`.
    """

    permitted: WiderPrecision
    reason: str


@dataclass
class DecidedPrecision:
    """Precision of the dense layers of an artifact.

    Attributes
    ----------
    permitted : str
        `int8`: int8 on CPUs that have int8 arithmetic, else as `without_int8` says. `bf16`: bf16 on CPUs that support
        it, else `fp32`.
    forced : bool
        True if the precision was requested, whatever it loses. CPUs that do not support bf16 refuse a model that was
        forced to it.
    certificate : Certificate or None
        That of bf16; None: not measured.
    int8 : DecidedInt8 or None
        None: fp32 or bf16 was requested, or the graph has no layer that could compute in int8.
    without_int8 : WithoutInt8 or None
        None: int8 is not permitted.
    """

    requested: RequestedPrecision
    permitted: PermittedPrecision
    forced: bool
    reason: str
    certificate: Certificate | None = None
    int8: DecidedInt8 | None = None
    without_int8: WithoutInt8 | None = None

    @property
    def attribute(self) -> str:
        """Value of the precision attribute of the graph's ops."""
        if self.forced:
            return self.permitted
        return "fp32" if self.permitted == "fp32" else "auto"


@dataclass
class Precision(DecidedPrecision):
    """A decided precision with the losses that led to it.

    Attributes
    ----------
    losses : list of Loss
        Effect of bf16 on each output.
    """

    int8: Int8 | None = None
    losses: list[Loss] = field(default_factory=list)
