# SPDX-License-Identifier: Apache-2.0
"""Run both models of a verification in the same way, so that only the models differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph.op_library import our_ops
from graph_tools.model import Model
from graph_tools.progress import Progress
from graph_tools.readers.unknown_ops import check_unknown_ops
from graph_tools.verification.elsewhere import Elsewhere, ElsewhereRunner
from graph_tools.verification.non_numbers import Both
from graph_tools.verification.nudging import is_nudgeable, nudgeable_copy, without_nudges
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Answer, LoadError, Runner, SessionRunner, V2Runner, foreign_ops, quiet
from graph_tools.verification.settings import settings_here
from graph_tools.verification.staged import StagedRunner
from graph_tools.verification.tables import held_bytes

Load = Callable[[Model], Runner]


class Runners:
    """Runs both models with the same loader, one after the other, so that only one of them is in memory."""

    def __init__(self, a: Model, b: Model, large: int | None, progress: Progress) -> None:
        self.models, self.large, self.progress = (a, b), large, progress
        self.how = ["", ""]
        self._staged: list[bool] = []
        self._name = ""
        #: By sparse table of the first model: number of different keys that the requests found.
        self.found: dict[str, int] = {}
        self._loads: list[Load] = []

    def answers(self, asked: list[Request]) -> tuple[list[Answer], list[Answer]]:
        staged = [_is_rewritten(model) or _has_large(model, self.large) for model in self.models]
        graph_def = any(model.kind == "GraphDef" for model in self.models)
        loaders: list[Load] = [V2Runner, SessionRunner]
        # Eager models share resources by name, so two versions of a model would share one embedding table.
        if any(staged) or graph_def or any(our_ops(model.graph) for model in self.models):
            loaders = [SessionRunner]
        failure: LoadError | None = None
        self._staged = staged
        for load in loaders:
            self._loads = [
                (lambda model: StagedRunner(model, self.large)) if is_staged else load for is_staged in staged
            ]
            self._name = load.__name__
            try:
                first, second = (self._answers_of(number, self._loads[number], asked) for number in (0, 1))
            except LoadError as error:
                failure = error
            else:
                return first, second
        assert failure is not None
        raise UnreadableError(str(failure)) from failure

    def ask_nudged(self, asked: list[Request]) -> list[Answer]:
        """Run the first model with its numbers nudged.

        If it has no such numbers, or does not load after the rewrite, run it unchanged.
        """
        how, found, first = list(self.how), dict(self.found), nudgeable_copy(self.models[0])
        try:
            if is_nudgeable(first):
                return self._answers_of(0, lambda _: StagedRunner(first, self.large), asked)
        except LoadError:
            pass
        finally:
            self.how, self.found = how, found
        return self._answers_of(0, self._loads[0], [without_nudges(request) for request in asked])

    def elsewhere(self, asked: list[Request]) -> Both | None:
        """Run both models with the other setting of oneDNN; return None if they do not load."""
        onednn = not settings_here().onednn
        where = f", {'with' if onednn else 'without'} oneDNN"

        how = list(self.how)
        try:
            with Elsewhere(onednn) as process:

                def plain(model: Model) -> Runner:
                    return ElsewhereRunner(process, model, self._name)

                def parts(model: Model) -> Runner:
                    return StagedRunner(model, self.large, lambda part: ElsewhereRunner(process, part, "SessionRunner"))

                first, second = (
                    self._answers_of(number, parts if staged else plain, asked, where)
                    for number, staged in enumerate(self._staged)
                )
        except LoadError:
            return None
        finally:
            self.how = how
        return first, second

    def _answers_of(self, number: int, load: Load, asked: list[Request], where: str = "") -> list[Answer]:
        model = self.models[number]
        self.progress.begin(f"Running {model.path}{where}", len(asked), "requests")
        try:
            with quiet():
                runner = load(model)
        except (LoadError, ConversionError) as error:
            raise LoadError(f"{model.path}: {error}, expected a model that TensorFlow loads") from error
        self.how[number] = runner.how
        try:
            answers = runner.run(
                [request.shortest for request in asked] if number else asked, lambda: self.progress.advance(1)
            )
            if not number and isinstance(runner, StagedRunner):
                self.found |= runner.found
            return answers
        finally:
            runner.close()


def _is_rewritten(model: Model) -> bool:
    """Return whether TensorFlow cannot load the files of the model, or would load something else than was read.

    The reasons are lookups of training systems, training ops that no output needs, and weights from another checkpoint
    or from a timeline.

    Raises
    ------
    UnreadableError
        An output needs an op that TensorFlow does not have and that is not a lookup.
    """
    # Large constants of a frozen graph have become variables, which are copied less often.
    if model.changed or model.sparse_tables or (model.kind == "GraphDef" and model.variables):
        return True
    if foreign_ops(model):
        try:
            check_unknown_ops(model)
        except ConversionError as error:
            raise UnreadableError(f"{error}; --op-library may name a library that has them") from error
        return True
    own = model.path / "variables" / "variables"
    return model.checkpoint is not None and Path(model.checkpoint.prefix) != own


def _has_large(model: Model, large: int | None) -> bool:
    """Return whether a model has a variable or hash table that must be read as a stream."""
    return large is not None and any(size >= large for size in held_bytes(model))
