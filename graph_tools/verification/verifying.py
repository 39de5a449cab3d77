# SPDX-License-Identifier: Apache-2.0
"""Verify: send the same requests to two models and compare their outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graph_tools.analysis.user_rows import user_inputs
from graph_tools.errors import GraphToolsError, UsageError
from graph_tools.graph.op_library import Libraries, load_libraries
from graph_tools.model import Model, Signature, disk_bytes
from graph_tools.progress import Progress, Silent
from graph_tools.readers import read_model
from graph_tools.tables.absent_keys import base_name
from graph_tools.tensors import Array, byte_size
from graph_tools.verification.compare import OutputComparison, Tolerance
from graph_tools.verification.evidence import gather_evidence
from graph_tools.verification.generate import Generator
from graph_tools.verification.losses import worst_keys
from graph_tools.verification.non_numbers import Alike
from graph_tools.verification.report import Asked, ComparedModel, Refused, VerifyReport
from graph_tools.verification.request import Request
from graph_tools.verification.requests import WARM_UP_FILE, read_requests
from graph_tools.verification.rounding import Slacks, slacks
from graph_tools.verification.runner import Answer, Refusal
from graph_tools.verification.runners import Runners
from graph_tools.verification.settings import settings_here
from graph_tools.verification.structure import find_sparse_inputs, row_count
from graph_tools.verification.tables import Pair, compare_rows, compare_tables, largest_share, pair_by_name
from graph_tools.verification.user_rows import with_user_forms, with_user_repeated

SAMPLES = 32


def verify(
    a: str | Path | Model,
    b: str | Path | Model,
    *,
    requests: Iterable[str | Path] = (),
    samples: int = SAMPLES,
    tolerance: Tolerance | str | None = None,
    seed: int = 0,
    op_library: Libraries = None,
    memory_limit: int | None = None,
    tables: Callable[[Model, Model], Iterable[Pair]] | None = None,
    asking: Model | None = None,
    rounding: bool = True,
    lossy: bool = False,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare the outputs of two models.

    Parameters
    ----------
    a, b : path or Model
        The reference model, and the model to check. A Model must be as `read_model` returned it, before any pass.
    requests : iterable of path
        Recorded requests; the warm-up file of `a`, if there is one, is always added.
    samples : int
        Number of generated requests for each signature.
    tolerance : Tolerance or str, optional
        `ABS[,REL]`: |a - b| <= ABS + REL * |b|; by default 1e-5,1e-5.
    seed : int
        Seed of the generated requests.
    op_library : path or sequence of path, optional
        Libraries with ops that TensorFlow does not have; libprocessor is found without this option.
    memory_limit : int [bytes], optional
        If a model is larger, its tables are read as streams and compared row by row, and only the rows that the
        requests need are served.
    tables : callable, optional
        Returns pairs of corresponding tables, if their names differ: a conversion knows which table became which.
    asking : Model, optional
        Model that both were made from: requests are generated for it, since it shows its vocabularies and tables.
    rounding : bool
        Permit a larger difference of a score if the first model's own score changes that much when a number of the
        request or a weight changes in its last place.
    lossy : bool
        The second model's rows have fewer bits: requests contain those keys of `tables` that lose most.
    progress : optional

    Returns
    -------
    VerifyReport

    Raises
    ------
    UnreadableError, UsageError
        A model or file cannot be read, a model has ops that cannot be run, or an option is wrong.
    """
    begun = time.monotonic()
    progress = progress or Silent()
    if samples < 0:
        raise UsageError(f"samples: {samples}, expected 0 or more")
    allowed = Tolerance.parse(tolerance) if isinstance(tolerance, str) else tolerance or Tolerance()
    load_libraries(op_library)
    first, second = (model if isinstance(model, Model) else read_model(model) for model in (a, b))
    report = VerifyReport(_compared_model(first), _compared_model(second), allowed, seed)
    names = common_signatures(first, second, report)
    known = [model for model in (asking, first, second) if model is not None]
    users = {name: user_inputs(second.graph, second.signatures[name]) for name in names}
    worst = worst_keys(tables(first, second)) if lossy and tables is not None else {}
    asked = _requests(known, users, list(requests), samples, seed, report, worst)
    large = None if memory_limit is None else _streamed_bytes(first, second, memory_limit)
    runners = Runners(first, second, large, progress)
    answers = runners.answers(asked)
    report.a.how, report.b.how = runners.how
    rounded: Slacks = slacks(asked, *answers, allowed, runners.ask_nudged) if rounding else {}
    alike = Alike(asked, *answers, allowed, runners.elsewhere)
    _compare(asked, answers, first, names, report, rounded, alike)
    report.settings = settings_here()
    report.warnings = alike.warnings()
    report.evidence = gather_evidence(known[0], asked, answers, runners.found, memory_limit)
    if large is not None:
        progress.begin("Comparing tables row by row")
        _compare_tables(first, second, tables, large, memory_limit or 0, report)
    report.seconds = time.monotonic() - begun
    return report


def _compared_model(model: Model) -> ComparedModel:
    return ComparedModel(str(model.path), model.kind, disk_bytes(model.path), "")


def _streamed_bytes(a: Model, b: Model, memory_limit: int) -> int | None:
    """Return the size of tables from which on they are streamed; None: both models fit into memory."""
    held = [disk_bytes(model.path) - _mapped_bytes(model) for model in (a, b)]
    return largest_share(memory_limit, a, b) if max(*held, *map(_table_bytes, (a, b))) > memory_limit else None


def common_signatures(a: Model, b: Model, report: VerifyReport) -> list[str]:
    """Return the signatures that both models have with the same inputs, and report the other differences."""
    names = []
    for name, signature in a.signatures.items():
        if name not in b.signatures:
            report.not_compared.append(f"signature '{name}': only the first model has it")
            continue
        found = list(_input_problems(name, signature, b.signatures[name]))
        report.problems.extend(found)
        if found:
            continue
        names.append(name)
        second = b.signatures[name].outputs
        for key in sorted(set(signature.outputs) ^ set(second)):
            which = "first" if key in signature.outputs else "second"
            report.not_compared.append(f"signature '{name}', output '{key}': only the {which} model has it")
        if not set(signature.outputs) & set(second):
            report.problems.append(f"signature '{name}': no output is in both models, expected at least one")
    for name in b.signatures:
        if name not in a.signatures:
            report.not_compared.append(f"signature '{name}': only the second model has it")
    return names


def _input_problems(name: str, a: Signature, b: Signature) -> Iterable[str]:
    for key in sorted(set(a.inputs) | set(b.inputs)):
        place = f"signature '{name}', input '{key}'"
        if key not in b.inputs or key not in a.inputs:
            yield f"{place}: only the {'first' if key in a.inputs else 'second'} model has it, expected both"
        elif a.inputs[key].dtype != b.inputs[key].dtype:
            yield f"{place}: {a.inputs[key].dtype.name} and {b.inputs[key].dtype.name}, expected one dtype"
        elif not _same_default(a.default(key), b.default(key)):
            yield f"{place}: another default in the second model, expected that of the first"


def _same_default(a: Array | None, b: Array | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.ravel().tolist() == b.ravel().tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def _requests(
    known: list[Model],
    users: Mapping[str, list[str]],
    files: Sequence[str | Path],
    samples: int,
    seed: int,
    report: VerifyReport,
    worst: Mapping[str, Array],
) -> list[Request]:
    """Return the recorded requests, then the generated ones, for the signatures in `users`.

    The first model in `known` defines the inputs of a request.
    """
    a, names = known[0], users
    asked: list[Request] = []
    for file in files:
        recorded = read_requests(file, a.signatures)
        asked.extend(request for request in recorded if request.signature in names)
    warm_up = a.extra / WARM_UP_FILE if a.extra is not None else None
    if warm_up is not None and warm_up.is_file() and not any(Path(file) == warm_up for file in files):
        try:
            asked.extend(request for request in read_requests(warm_up, a.signatures) if request.signature in names)
        # The user did not name this file, and its content is meant for the server.
        except GraphToolsError as error:
            report.not_compared.append(str(error))
    asked = [with_user_repeated(request, users[request.signature]) for request in asked]
    for name, user in users.items():
        asked.extend(with_user_forms(Generator(*known, name=name, seed=seed, worst=worst).requests(samples), user))
    return asked


def _compare(
    asked: list[Request],
    answers: tuple[list[Answer], list[Answer]],
    a: Model,
    names: list[str],
    report: VerifyReport,
    rounded: Slacks,
    alike: Alike,
) -> None:
    outputs: dict[tuple[str, str], OutputComparison] = {}
    signatures = {name: Asked(name) for name in names}
    sparse = {name: find_sparse_inputs(a, a.signatures[name]) for name in names}
    for number, (request, first, second) in enumerate(zip(asked, *answers, strict=True)):
        of = signatures[request.signature]
        of.generated += request.generated
        of.recorded += not request.generated
        if isinstance(first, Refusal) or isinstance(second, Refusal):
            empty = isinstance(second, dict) and not any(value.size for value in second.values())
            report.refused.append(Refused(request.signature, request.origin, _error(first), _error(second), empty))
            continue
        # Nearly every model accepts an empty batch, which proves nothing about its scores.
        if any(value.size for value in first.values()):
            of.answered += 1
            of.rows += row_count(request, first, sparse[request.signature])
        for key in sorted(set(first) & set(second)):
            place = (request.signature, key)
            if place not in outputs:
                outputs[place] = OutputComparison(*place, a.signatures[request.signature].outputs[key].dtype.name)
            slack = rounded.get(number, {}).get(key)
            same = alike.equal_elsewhere(number, request, key, first[key], second[key])
            outputs[place].add(first[key], second[key], report.tolerance, request.origin, request.labels, slack, same)
    for output in outputs.values():
        output.finish()
        if not output.elements and not output.shapes and signatures[output.signature].answered:
            report.not_compared.append(
                f"signature '{output.signature}', output '{output.name}': no answer contains an element"
            )
    report.signatures, report.outputs = list(signatures.values()), list(outputs.values())


def _error(answer: Answer) -> str | None:
    return f"{answer.code}: {answer.message}" if isinstance(answer, Refusal) else None


def _compare_tables(
    a: Model,
    b: Model,
    pair: Callable[[Model, Model], Iterable[Pair]] | None,
    large: int,
    memory: int,
    report: VerifyReport,
) -> None:
    pairs, variables = pair_by_name(a, b, large)
    if pair is not None:
        pairs = list(pair(a, b))
    seen = {known.source.name for known in pairs}
    report.tables.extend(compare_tables(pairs, report.tolerance, max(1, memory // 4)))
    several = [variable for variable in variables if variable[0] not in seen]
    report.tables.extend(compare_rows(name, x, y, report.tolerance) for name, x, y in several)
    seen |= {variable[0] for variable in several}
    everything: dict[str, Any] = {**a.sparse_tables, **{n: t for n, t in a.variables.items() if _is_large(t, large)}}
    for name, table in everything.items():
        names = {name, getattr(table, "name", name)}
        if not seen & (names | {base_name(name) for name in names}):
            report.not_compared.append(
                f"table '{name}': only the rows that the requests need, since it is not known which table of the "
                "second model corresponds to it"
            )


def _table_bytes(model: Model) -> int:
    """Return the bytes of the tables that are read; they may be in files outside the model."""
    return sum(table.source_bytes for table in model.sparse_tables.values())


def _mapped_bytes(model: Model) -> int:
    """Return the bytes of table files, which are memory-mapped and not loaded."""
    files = {table.file for table in model.embedding_tables.values() if table.file is not None}
    return sum(file.stat().st_size for file in files)


def _is_large(tensor: Any, large: int) -> bool:
    return byte_size(tensor) >= large
