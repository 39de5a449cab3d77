# SPDX-License-Identifier: Apache-2.0
"""What a verification found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graph_tools.report.data import as_data
from graph_tools.verification.compare import OutputComparison, Tolerance

SCHEMA = "verify_report"


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
    """A request that both models refused alike, or that one of them did."""

    request: str
    a: str | None
    b: str | None

    @property
    def equal(self) -> bool:
        """Whether both refused with the same error."""
        return self.a is not None and self.b is not None and self.a.split(":")[0] == self.b.split(":")[0]


@dataclass
class SignatureComparison:
    """What was asked of a signature and how the answers compare.

    Attributes
    ----------
    name : str
    generated, recorded : int
        Requests.
    rows : int
        Size of the requests' first dimensions, added up.
    answered : int
        Requests that both answered.
    refused : list of Refused
    outputs : list of OutputComparison
    """

    name: str
    generated: int = 0
    recorded: int = 0
    rows: int = 0
    answered: int = 0
    refused: list[Refused] = field(default_factory=list)
    outputs: list[OutputComparison] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(one.equal for one in self.outputs) and all(one.equal for one in self.refused)


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
    largest_absolute : float
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
    largest_absolute: float = 0.0
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
    signatures : list of SignatureComparison
    tables : list of TableComparison
        Those compared row by row: where a model is larger than the memory limit.
    not_compared : list of str
        What only one of the models has, and why that was let pass.
    problems : list of str
        Differences that are none of numbers: inputs that are missing, dtypes that changed.
    seconds : float
    """

    a: Side
    b: Side
    tolerance: Tolerance
    seed: int
    signatures: list[SignatureComparison] = field(default_factory=list)
    tables: list[TableComparison] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether both models answer alike, within the tolerance, and something was compared at all."""
        return (
            not self.problems
            and any(one.answered for one in self.signatures)
            and all(one.equal for one in self.signatures)
            and all(one.equal for one in self.tables)
        )

    @property
    def bit_exact(self) -> bool:
        """Whether no bit differs."""
        outputs = [output for one in self.signatures for output in one.outputs]
        return self.equal and all(one.bit_exact for one in outputs) and all(one.different == 0 for one in self.tables)

    @property
    def largest_absolute(self) -> float:
        return max((output.largest_absolute for one in self.signatures for output in one.outputs), default=0.0)

    def reasons(self) -> list[str]:
        """Say what differs, a sentence each; the most important first."""
        found = list(self.problems)
        if not any(one.answered for one in self.signatures):
            found.append("no request was answered by both models, expected at least one")
        for signature in self.signatures:
            for output in signature.outputs:
                if not output.equal:
                    found.append(_output_reason(signature.name, output))
            for refused in signature.refused:
                if not refused.equal:
                    a, b = refused.a or "an answer", refused.b or "an answer"
                    found.append(f"signature '{signature.name}', {refused.request}: {a}, then {b}, expected the same")
        found.extend(
            f"table '{one.name}': {one.beyond} of {one.rows} rows differ, key {one.worst} most, expected none"
            for one in self.tables
            if not one.equal
        )
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the report as `docs/schemas/verify_report.schema.json` describes it."""
        data: dict[str, Any] = as_data(self)
        data |= {"equal": self.equal, "bit_exact": self.bit_exact, "reasons": self.reasons()}
        for signature, one in zip(data["signatures"], self.signatures, strict=True):
            signature["equal"] = one.equal
            for output, compared in zip(signature["outputs"], one.outputs, strict=True):
                output |= {"equal": compared.equal, "bit_exact": compared.bit_exact}
            for refused, both in zip(signature["refused"], one.refused, strict=True):
                refused["equal"] = both.equal
        for table, compared_table in zip(data["tables"], self.tables, strict=True):
            table["equal"] = compared_table.equal
        return {"schema": SCHEMA, "version": 1, **data}


def _output_reason(signature: str, output: OutputComparison) -> str:
    place = f"signature '{signature}', output '{output.name}'"
    if "!=" in output.dtype:
        return f"{place}: dtypes {output.dtype}, expected the same"
    worst = output.worst or {}
    where = f"{worst.get('a')} and {worst.get('b')} at {worst.get('index')} of '{worst.get('request')}'"
    if output.shapes:
        return f"{place}: {output.shapes} answers of different shapes, {where}, expected the same"
    return f"{place}: {output.beyond} of {output.elements} elements differ, {where}, expected them within the tolerance"
