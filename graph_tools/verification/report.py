# SPDX-License-Identifier: Apache-2.0
"""Define the report of a verification."""

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
        Size on disk.
    how : str
        How it was run.
    """

    path: str
    kind: str
    bytes: Count
    how: str


@dataclass
class Refused:
    """A request that at least one of the models refused.

    Attributes
    ----------
    a, b : str or None
        The error of each model, code first; None: the model ran the request.
    empty : bool
        The second model ran the request, and no output has an element: without rows there are no scores to differ.
    """

    signature: str
    request: str
    a: str | None
    b: str | None
    empty: bool = False

    @property
    @reported
    def equal(self) -> bool:
        """True if both refused with the same code, or the second returned empty outputs for a request without rows."""
        if self.empty:
            return self.a is not None and self.b is None
        return self.a is not None and self.b is not None and self.a.split(":")[0] == self.b.split(":")[0]


@dataclass
class Asked:
    """The requests for a signature.

    Attributes
    ----------
    generated : int
        Requests that were generated.
    recorded : int
        Requests from files.
    rows : int
        Sum of the rows of the requests that both models ran successfully; see `row_count`.
    answered : int
        Requests for which both models returned at least one element.
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
        Keys of the first model, or rows if there are no keys.
    stored, absent : int
        Keys that the second model contains, and keys for which it returns its absent value.
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
    """The report of `graph-tools verify`.

    Attributes
    ----------
    seed : int
        Seed of the generated requests.
    refused : list of Refused
        Requests that at least one of the models refused.
    tables : list of TableComparison
        Tables that were compared row by row, if a model is larger than the memory limit.
    not_compared : list of str
        Parts that only one of the models has and that were not judged.
    problems : list of str
        Differences of the interface: inputs that are missing, dtypes that changed.
    warnings : list of str
        Differences that TensorFlow itself causes and that are not judged, with the inputs that show them.
    settings : Settings or None
        How TensorFlow ran; None: no request was run.
    evidence : Evidence
        What the successful requests covered.
    verdict : list of str or None
        Replaces `reasons` if a conversion judges by other rules.
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
        """True if the outputs are equal within the tolerance and every signature had a successful request."""
        return not self.reasons

    @property
    @reported
    def bit_exact(self) -> bool:
        """True if no bit of any output differs."""
        exact = all(output.bit_exact for output in self.outputs) and all(table.different == 0 for table in self.tables)
        return exact and not self.differences()

    @property
    @reported
    def reasons(self) -> list[str]:
        """The differences, one sentence each; empty if `passed`."""
        return self.differences() if self.verdict is None else self.verdict

    @property
    @reported
    def requests(self) -> Count:
        """Number of requests that were run."""
        return sum(signature.generated + signature.recorded for signature in self.signatures)

    @property
    @reported
    def rows(self) -> Count:
        """Sum of the rows of the requests that both models ran successfully."""
        return sum(signature.rows for signature in self.signatures)

    @property
    @reported
    def weak(self) -> list[str]:
        """Why the comparison proves little, one sentence per reason; empty if it covers enough."""
        return weaknesses(
            self.evidence, {signature.name: (signature.answered, signature.rows) for signature in self.signatures}
        )

    @property
    def max_abs_difference(self) -> float:
        return max((output.max_abs_difference for output in self.outputs), default=0.0)

    def differences(self) -> list[str]:
        """Return the differences, one sentence each; the list is empty if both models are equal."""
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
            f"signature '{request.signature}', request '{request.request}': {request.a or 'an answer'} / "
            f"{request.b or 'an answer'}, expected the same of both"
            for request in self.refused
            if not request.equal
        )
        return found

    def _why_refused(self, signature: str) -> str:
        """Return the most frequent error of the first model for a signature, and how to avoid it."""
        said = Counter(
            request.a for request in self.refused if request.signature == signature and request.a is not None
        )
        if not said:
            return ""
        ((error, _),) = said.most_common(1)
        return f"; the first model refuses them with {error}: name recorded requests with --requests"


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
