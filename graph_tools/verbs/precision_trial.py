# SPDX-License-Identifier: Apache-2.0
"""Measure what a precision costs: send the same requests to an artifact in fp32 and in another precision."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from graph_tools.graph.op_library import library_info, load_library
from graph_tools.model import Model
from graph_tools.report.precision import Certificate, Loss
from graph_tools.store import TableFile
from graph_tools.verbs.cpu import this_cpu
from graph_tools.verbs.tower_precision import LayerPlace, set_precision
from graph_tools.verification import OutputComparison, VerifyReport
from graph_tools.verification.compare import FAR
from graph_tools.writer import write_graph

Tables = dict[str, TableFile]
#: Verifies one SavedModel against another, with a description of the second and whether to send recorded requests only.
Compare = Callable[[Path, Path, str, bool], VerifyReport]


@dataclass
class Measured:
    """The comparison of fp32 with another precision.

    Attributes
    ----------
    precision : str
    limit : float
        Largest permitted loss of AUC, or of rank correlation with the scores of fp32.
    report : VerifyReport
    """

    precision: str
    limit: float
    report: VerifyReport
    losses: list[Loss] = field(init=False)

    def __post_init__(self) -> None:
        self.losses = [loss_of(output, self.precision, self.limit) for output in self.report.outputs]

    @cached_property
    def problems(self) -> list[str]:
        """The reasons against the precision, one sentence each."""
        return self.score_problems + self.other_problems

    @property
    def score_problems(self) -> list[str]:
        """Reasons that outputs differ too much."""
        return [loss.problem for loss in self.losses if loss.problem is not None]

    @property
    def other_problems(self) -> list[str]:
        """Reasons that more precise layers would not change."""
        others = replace(self.report, outputs=[]).differences()
        return others + [f"the proof is too weak to permit {self.precision}: {reason}" for reason in self.report.weak]

    @property
    def lost(self) -> tuple[float, str]:
        """The largest loss of an output, and its unit."""
        if self._auc_losses:
            return max(self._auc_losses), "AUC"
        return max(self._rank_losses, default=0.0), "rank correlation"

    @property
    def badness(self) -> tuple[int, float, float]:
        """A key that orders measurements, the best first."""
        return len(self.score_problems), self.lost[0], self._max_difference

    @property
    def _auc_losses(self) -> list[float]:
        return [loss.auc_loss for loss in self.losses if loss.auc_loss is not None]

    @property
    def _rank_losses(self) -> list[float]:
        return [loss.rank_correlation_loss for loss in self.losses if loss.rank_correlation_loss is not None]

    @property
    def _max_difference(self) -> float:
        return max((loss.max_difference for loss in self.losses), default=0.0)

    def __str__(self) -> str:
        lost, unit = self.lost
        return f"{max(0.0, lost):.2g} of {unit}"

    def certificate(self) -> Certificate:
        """Return the measurements with the machine and the versions that they were made with."""
        import tensorflow as tf

        cpu = this_cpu()
        return Certificate(
            max_difference=self._max_difference,
            rank_correlation_loss=max(self._rank_losses, default=None),
            auc_loss=max(self._auc_losses, default=None),
            limit=self.limit,
            requests=sum(signature.answered for signature in self.report.signatures),
            rows=self.report.rows,
            cpu=cpu.model,
            cpu_features=cpu.features,
            arithmetic="int8" if self.precision == "int8" else cpu.arithmetic,
            library_version=library_info(load_library()).version,
            tensorflow_version=tf.__version__,
        )


@dataclass
class Trial:
    """Writes an artifact in other precisions, and compares it with itself in fp32.

    Attributes
    ----------
    model : Model
        The model as it was written; it computes in fp32.
    folder : Path
        Folder of the artifact.
    tables : dict of str to TableFile
        Its table files, by node.
    """

    model: Model
    folder: Path
    tables: Tables
    compare: Compare

    def measure(
        self,
        precision: str,
        limit: float,
        kept: Mapping[LayerPlace, str] | None = None,
        recorded_only: bool = False,
    ) -> Measured:
        """Compare the artifact with a copy in this precision that has the same variables and tables.

        Parameters
        ----------
        precision : str
            `bf16` or `int8`.
        limit : float
            Largest permitted loss.
        kept : mapping of LayerPlace to str, optional
            More precise layers of a copy in int8.
        recorded_only : bool
            Do not send generated requests.
        """
        described = ", ".join([precision, *(f"{place} in {wider}" for place, wider in (kept or {}).items())])
        with tempfile.TemporaryDirectory(prefix=f"graph-tools-{precision}-") as temporary:
            copy = Path(temporary) / self.folder.name
            copy.mkdir()
            for path in self.folder.iterdir():
                if path.name != "saved_model.pb":
                    (copy / path.name).symlink_to(path.absolute())
            set_precision(self.model, precision, kept)
            write_graph(self.model, copy, self.tables)
            return Measured(precision, limit, self.compare(self.folder, copy, described, recorded_only))


def loss_of(output: OutputComparison, precision: str, limit: float) -> Loss:
    """Return the effect of a precision on an output."""
    ranked = None if output.rank_correlation is None else max(0.0, 1.0 - output.rank_correlation)
    area = None if output.auc_a is None or output.auc_b is None else output.auc_a - output.auc_b
    problem = _problem(output, ranked, area, precision, limit)
    return Loss(output.signature, output.name, output.max_abs_difference, ranked, area, problem)


def _problem(
    output: OutputComparison, ranked: float | None, area: float | None, precision: str, limit: float
) -> str | None:
    place = f"signature '{output.signature}', output '{output.name}'"
    if output.equal:
        return None
    if not output.only_scores_differ:
        return f"{place}: outputs other than scores differ in {precision}"
    differs = f"{place}: differs by {output.max_abs_difference:.2g} in {precision}"
    lost, measure = (area, "AUC") if area is not None else (ranked, "rank correlation")
    if lost is None:
        return f"{differs}, and its values have no order to compare"
    if lost > limit:
        return f"{place}: loses {lost:.2g} of {measure} in {precision}, expected at most {limit:g}"
    if output.far:
        return f"{differs}, expected at most {FAR.absolute:g} + {FAR.relative:g} x |score|"
    return None
