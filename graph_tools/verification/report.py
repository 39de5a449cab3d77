# SPDX-License-Identifier: Apache-2.0
"""What a verification found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from graph_tools.json_data import Count, Difference, NotNegative, Report, reported
from graph_tools.verification.compare import OutputComparison, Tolerance
from graph_tools.verification.evidence import Evidence, weaknesses
from graph_tools.verification.settings import Settings


@dataclass
class ComparedModel:
    """One of the two models.

    Attributes
    ----------
    bytes : int
        On disk.
    how : str
        How it was run.
    """

    path: str
    kind: str
    bytes: Count
    how: str


@dataclass
class Refused:
    """A request that not both models answered.

    Attributes
    ----------
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
    @reported
    def equal(self) -> bool:
        """Whether both refused with the same code, or the second answered a request of no rows with nothing."""
        if self.empty:
            return self.a is not None and self.b is None
        return self.a is not None and self.b is not None and self.a.split(":")[0] == self.b.split(":")[0]


@dataclass
class Asked:
    """What was asked of a signature.

    Attributes
    ----------
    generated : int
        Requests that were made up.
    recorded : int
        Requests from files.
    rows : int
        Of the requests that both answered, added up; see `row_count`.
    answered : int
        Requests that both models answered with at least one element.
    """

    name: str
    generated: Count = 0
    recorded: Count = 0
    rows: Count = 0
    answered: Count = 0


@dataclass
class TableComparison:
    """A table of both models, compared row by row.

    Attributes
    ----------
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
        Largest |a - b|.
    worst : str or None
        The key whose rows differ most.
    """

    name: str
    rows: Count = 0
    stored: Count = 0
    absent: Count = 0
    extra: Count = 0
    beyond: Count = 0
    different: Count = 0
    max_abs_difference: Difference = 0.0
    worst: str | None = None

    @property
    @reported
    def equal(self) -> bool:
        return self.beyond == 0


@dataclass
class VerifyReport(Report):
    """What `graph-tools verify` found.

    Attributes
    ----------
    seed : int
        Of the generated requests.
    refused : list of Refused
        Requests that not both models answered.
    tables : list of TableComparison
        Those compared row by row: where a model is larger than the memory limit.
    not_compared : list of str
        What only one of the models has, and that this was let pass.
    problems : list of str
        Differences of the interface: inputs that are missing, dtypes that changed.
    warnings : list of str
        Differences that are TensorFlow's own and not judged, with the inputs that show them.
    settings : Settings or None
        How TensorFlow ran; None: nothing was asked.
    evidence : Evidence
        What the answered requests had in them.
    verdict : list of str or None
        What `reasons` are where a conversion judges otherwise.
    """

    SCHEMA = "verify_report/1"

    a: ComparedModel
    b: ComparedModel
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
    seconds: NotNegative = 0.0
    verdict: list[str] | None = field(default=None, metadata={"hidden": True})

    @property
    @reported
    def passed(self) -> bool:
        """Whether both models answer alike, within the tolerance, and every signature was answered."""
        return not self.reasons

    @property
    @reported
    def bit_exact(self) -> bool:
        """Whether no bit of any output differs."""
        exact = all(output.bit_exact for output in self.outputs) and all(table.different == 0 for table in self.tables)
        return exact and not self.differences()

    @property
    @reported
    def reasons(self) -> list[str]:
        """What differs, a sentence each; empty where `passed`."""
        return self.differences() if self.verdict is None else self.verdict

    @property
    @reported
    def requests(self) -> Count:
        """Requests that were asked."""
        return sum(signature.generated + signature.recorded for signature in self.signatures)

    @property
    @reported
    def rows(self) -> Count:
        """Rows of the requests that both models answered, added up."""
        return sum(signature.rows for signature in self.signatures)

    @property
    @reported
    def weak(self) -> list[str]:
        """Why the comparison proves little, a sentence each; empty where it has seen enough."""
        return weaknesses(
            self.evidence, {signature.name: (signature.answered, signature.rows) for signature in self.signatures}
        )

    @property
    def max_abs_difference(self) -> float:
        return max((output.max_abs_difference for output in self.outputs), default=0.0)

    def differences(self) -> list[str]:
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
        found.extend(_output_reason(output) for output in self.outputs if not output.equal)
        found.extend(_table_reason(table) for table in self.tables if not table.equal)
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


def _output_reason(output: OutputComparison) -> str:
    place = f"signature '{output.signature}', output '{output.name}'"
    if "!=" in output.dtype:
        return f"{place}: dtypes {output.dtype}, expected the same"
    worst = output.worst
    assert worst is not None
    where = f"{worst.a} and {worst.b} at {worst.index} of request '{worst.request}'"
    if output.shapes:
        return f"{place}: {output.shapes} answers of different shapes, {where}, expected the same"
    return f"{place}: {output.beyond} of {output.elements} elements differ, {where}, expected them within the tolerance"


def _table_reason(table: TableComparison) -> str:
    return (
        f"table '{table.name}': {table.beyond} of {table.rows} rows differ, that of {table.worst} most, expected none"
    )
