# SPDX-License-Identifier: Apache-2.0
"""The interface of passes, and the function that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Generic, TypeVar

from graph_tools.json_data import Count
from graph_tools.live import UntracedError
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, Outcome, Refused

T = TypeVar("T")
U = TypeVar("U")


@dataclass
class PassResult:
    """The result of a pass.

    Attributes
    ----------
    name : str
    applied : int
        Number of sites that were rewritten.
    refused : list of (site, reason)
        Sites that look like the pattern but were left as they are.
    nodes_before, nodes_after : int
    at : list of str
        The sites that were rewritten, if they have names; not part of a report.
    """

    name: str
    applied: Count = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    nodes_before: Count = 0
    nodes_after: Count = 0
    at: list[str] = field(default_factory=list, metadata={"hidden": True})


class Pass(ABC):
    """One rewrite of the graph, named by a verb; its docstring shows the graph before and after."""

    #: Its name in the report and in `--skip-pass`.
    name: str
    #: Sites to leave alone, by name, with the reason.
    left_alone: Mapping[str, str] = MappingProxyType({})

    def apply(self, model: Model) -> PassResult:
        """Rewrite every site that may be rewritten.

        Raises
        ------
        UntracedError
            The pass uses the value of a variable that a trainer may change in a way that no formula records.
        """
        result = PassResult(self.name, nodes_before=len(model.graph))
        try:
            self.process(model, result)
        except UntracedError as error:
            raise UntracedError(f"pass {self.name}: {error}") from error
        result.nodes_after = len(model.graph)
        return result

    @abstractmethod
    def process(self, model: Model, result: PassResult) -> None:
        """Rewrite the graph, and record in `result` which sites were rewritten and which were refused."""

    @abstractmethod
    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the names of nodes, or descriptions, that contradict what holds after the pass; tests check this."""

    def handle(self, site: str, outcome: Outcome[U], rewrite: Callable[[U], None], result: PassResult) -> None:
        """Rewrite a site if its pattern was found and it is not to be left alone, and record what was done."""
        if isinstance(outcome, Found) and site in self.left_alone:
            outcome = Refused(self.left_alone[site])
        if isinstance(outcome, Found):
            rewrite(outcome.value)
            result.applied += 1
            result.at.append(site)
        elif isinstance(outcome, Refused):
            result.refused.append((site, outcome.reason))


class SitePass(Pass, Generic[T]):
    """A pass that examines one node after the other, and rewrites each node at which it finds its pattern."""

    @abstractmethod
    def candidates(self, model: Model) -> Iterable[str]:
        """Return the names of the nodes at which the pattern may begin."""

    @abstractmethod
    def match(self, model: Model, site: str) -> Outcome[T]:
        """Search for the pattern at a node."""

    @abstractmethod
    def rewrite(self, model: Model, site: str, found: T) -> None:
        """Rewrite a site, with the value `found` that `match` found there."""

    def process(self, model: Model, result: PassResult) -> None:
        for site in list(self.candidates(model)):
            if site in model.graph:
                self.handle(site, self.match(model, site), partial(self.rewrite, model, site), result)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the sites that the pass would still rewrite."""
        for site in list(self.candidates(model)):
            if site not in self.left_alone and isinstance(self.match(model, site), Found):
                yield site


def run_passes(model: Model, passes: Iterable[Pass], skip: Iterable[str] = ()) -> list[PassResult]:
    """Run passes in order, once each, and return their results."""
    skipped = set(skip)
    return [pass_.apply(model) for pass_ in passes if pass_.name not in skipped]
