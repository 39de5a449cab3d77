# SPDX-License-Identifier: Apache-2.0
"""What a verification found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from graph_tools.json_data import as_data
from graph_tools.verification.compare import OutputComparison, Tolerance
from graph_tools.verification.evidence import Evidence, weaknesses
from graph_tools.verification.settings import Settings

SCHEMA = "verify_report/1"


@dataclass
class Side:
    """One of the two models.

    Attributes
    ----------
    path : str
    kind : str
    bytes : int
        On disk.
    how : str
        How it was run.
    """

    path: str
    kind: str
    bytes: int
    how: str


@dataclass
class Refused:
    """A request that not both models answered.

    Attributes
    ----------
    signature, request : str
    a, b : str or None
        The error of each model, code first; None: it answered.
    empty : bool
        The second model answered, and no output has an element: of no rows there are no scores to differ.
    """

    signature: str
    request: str
    a: str | None
    b: str | None
    empty: bool = False

    @property
    def equal(self) -> bool:
        """Whether both refused with the same error, or the second answered a request of no rows."""
        if self.empty:
            return self.a is not None and self.b is None
        return self.a is not None and self.b is not None and self.a.split(":")[0] == self.b.split(":")[0]


@dataclass
class Asked:
    """What was asked of a signature.

    Attributes
    ----------
    name : str
    generated, recorded : int
        Requests.
    rows : int
        Of the requests that both answered, added up; see `row_count`.
    answered : int
        Requests that both models answered with at least one element.
    """

    name: str
    generated: int = 0
    recorded: int = 0
    rows: int = 0
    answered: int = 0


@dataclass
class TableComparison:
    """A table of both models, compared row by row.

    Attributes
    ----------
    name : str
    rows : int
        Keys of the first model, or rows where there are no keys.
    stored, absent : int
        Keys that the second model holds, and those that it gives its absent value.
    extra : int
        Keys of the second model that the first does not have.
    beyond : int
        Keys whose rows differ by more than the tolerance.
    different : int
        Keys whose rows differ in any bit.
    max_abs_difference : float
    worst : str or None
        The key whose rows differ most.
    """

    name: str
    rows: int = 0
    stored: int = 0
    absent: int = 0
    extra: int = 0
    beyond: int = 0
    different: int = 0
    max_abs_difference: float = 0.0
    worst: str | None = None

    @property
    def equal(self) -> bool:
        return self.beyond == 0


@dataclass
class VerifyReport:
    """Two models compared.

    Attributes
    ----------
    a, b : Side
    tolerance : Tolerance
    seed : int
        Of the generated requests.
    signatures : list of Asked
    outputs : list of OutputComparison
    refused : list of Refused
    tables : list of TableComparison
        Those compared row by row: where a model is larger than the memory limit.
    not_compared : list of str
        What only one of the models has, and that this was let pass.
    problems : list of str
        Differences that are none of numbers: inputs that are missing, dtypes that changed.
    warnings : list of str
        Differences that are TensorFlow's own and not judged, with the inputs that show them.
    settings : Settings or None
        How TensorFlow ran; None: nothing was asked.
    evidence : Evidence
    seconds : float
    """

    a: Side
    b: Side
    tolerance: Tolerance
    seed: int
    signatures: list[Asked] = field(default_factory=list)
    outputs: list[OutputComparison] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    tables: list[TableComparison] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    settings: Settings | None = None
    evidence: Evidence = field(default_factory=Evidence)
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        return sum(one.generated + one.recorded for one in self.signatures)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.signatures)

    @property
    def passed(self) -> bool:
        """Whether both models answer alike, within the tolerance, and every signature was answered at all."""
        return not self.reasons()

    @property
    def weak(self) -> list[str]:
        """Why the comparison proves little, a sentence each; none: it has seen enough."""
        return weaknesses(self.evidence, {one.name: (one.answered, one.rows) for one in self.signatures})

    @property
    def bit_exact(self) -> bool:
        """Whether no bit differs."""
        exact = all(one.bit_exact for one in self.outputs) and all(one.different == 0 for one in self.tables)
        return self.passed and exact

    @property
    def max_abs_difference(self) -> float:
        return max((one.max_abs_difference for one in self.outputs), default=0.0)

    def reasons(self) -> list[str]:
        """Say what differs, a sentence each; none: both models are equal."""
        found = list(self.problems)
        if not self.signatures and not found:
            found.append("no signature is in both models, expected at least one")
        for asked in self.signatures:
            if not asked.answered:
                found.append(
                    f"signature '{asked.name}': none of {asked.generated + asked.recorded} requests was answered by "
                    f"both models, expected at least one{self._why_refused(asked.name)}"
                )
        found.extend(_output_reason(one) for one in self.outputs if not one.equal)
        found.extend(_table_reason(one) for one in self.tables if not one.equal)
        found.extend(
            f"signature '{one.signature}', request '{one.request}': {one.a or 'an answer'} / {one.b or 'an answer'}, "
            "expected the same of both"
            for one in self.refused
            if not one.equal
        )
        return found

    def _why_refused(self, signature: str) -> str:
        """Say what the first model says most often to requests for a signature, and what can be done about it."""
        said = Counter(one.a for one in self.refused if one.signature == signature and one.a is not None)
        if not said:
            return ""
        ((error, _),) = said.most_common(1)
        return f"; the first says {error}: give recorded ones with --requests"

    def numeric_reasons(self) -> list[str]:
        """Say which scores differ, a sentence each: those of `reasons` that a lossy conversion may bring about.

        A shape, a dtype, a string or an id that differs is none of them, nor is a score that became NaN.
        """
        found = [_output_reason(one) for one in self.outputs if not one.equal and one.only_scores_differ]
        return found + [_table_reason(one) for one in self.tables if not one.equal]

    def to_json(self) -> dict[str, Any]:
        """Return the report as `docs/schemas/verify_report.schema.json` describes it."""
        data: dict[str, Any] = as_data(self)
        for kind, several in (("outputs", self.outputs), ("refused", self.refused), ("tables", self.tables)):
            for one, found in zip(data[kind], several, strict=True):
                one["equal"] = found.equal  # type: ignore[attr-defined]
        for one, output in zip(data["outputs"], self.outputs, strict=True):
            one["bit_exact"] = output.bit_exact
        head = {"schema": SCHEMA, "passed": self.passed, "bit_exact": self.bit_exact, "reasons": self.reasons()}
        return head | {"requests": self.requests, "rows": self.rows, "weak": self.weak} | data


def _output_reason(output: OutputComparison) -> str:
    place = f"signature '{output.signature}', output '{output.name}'"
    if "!=" in output.dtype:
        return f"{place}: dtypes {output.dtype}, expected the same"
    worst = output.worst or {}
    where = f"{worst.get('a')} and {worst.get('b')} at {worst.get('index')} of request '{worst.get('request')}'"
    if output.shapes:
        return f"{place}: {output.shapes} answers of different shapes, {where}, expected the same"
    return f"{place}: {output.beyond} of {output.elements} elements differ, {where}, expected them within the tolerance"


def _table_reason(table: TableComparison) -> str:
    return (
        f"table '{table.name}': {table.beyond} of {table.rows} rows differ, that of {table.worst} most, expected none"
    )
