# SPDX-License-Identifier: Apache-2.0
"""Run a model in stock TensorFlow."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graph_tools.graph import is_native
from graph_tools.model import Model
from graph_tools.readers.saved_model import is_saved_model
from graph_tools.tensors import Array
from graph_tools.verification.request import Request

V2_LOADER, SESSION, GRAPH_DEF = "tf.saved_model.load", "session", "session on a GraphDef"


@dataclass(frozen=True)
class Refusal:
    """A model did not answer.

    Attributes
    ----------
    code : str
        Canonical name of the error: `INVALID_ARGUMENT`.
    message : str
    """

    code: str
    message: str


Answer = dict[str, Array] | Refusal
Answered = Callable[[], None]


class Runner(Protocol):
    """Something that answers requests.

    Attributes
    ----------
    how : str
        In words for the report.
    """

    how: str

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        """Answer requests in order; `answered` is called after each."""
        ...

    def close(self) -> None:
        """Give the model's memory back."""
        ...


class LoadError(Exception):
    """TensorFlow cannot load the model in this way."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep TensorFlow's loaders from warning of what their own API has become."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def foreign_ops(model: Model) -> list[str]:
    """Name the ops of a graph that TensorFlow does not have, those of loaded libraries taken as its own."""
    library = model.graph.library
    ops = {node.op for node in model.graph} | {node.op for one in library.values() for node in one.node_def}
    return sorted(op for op in ops if not is_native(op) and op not in library)


class V2Runner:
    """A SavedModel loaded as TensorFlow 2 does, with its object graph."""

    def __init__(self, model: Model) -> None:
        import tensorflow as tf

        self.how = V2_LOADER
        self._signatures = model.signatures
        try:
            self._loaded = tf.saved_model.load(str(model.path), tags=list(model.tags))
            self._functions = {name: self._loaded.signatures[name] for name in model.signatures}
        # An export of another version fails in whatever way the difference shows.
        except Exception as error:
            raise LoadError(first_line(error)) from error

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        return [_guarded(self._one, request, answered) for request in requests]

    def _one(self, request: Request) -> dict[str, Array]:
        import tensorflow as tf

        inputs = self._signatures[request.signature].inputs
        feeds = {key: tf.constant(value, inputs[key].dtype) for key, value in request.inputs.items()}
        outputs = self._functions[request.signature](**feeds)
        return {key: as_array(outputs[key].numpy()) for key in self._signatures[request.signature].outputs}

    def close(self) -> None:
        self._functions, self._loaded = {}, None


class SessionRunner:
    """A graph in a session, as serving systems run it: a SavedModel without its object graph, or a GraphDef."""

    def __init__(self, model: Model) -> None:
        import tensorflow as tf

        v1 = tf.compat.v1
        saved = is_saved_model(model.path)
        self.how = SESSION if saved else GRAPH_DEF
        self._graph = v1.Graph()
        self._session = v1.Session(graph=self._graph)
        try:
            with self._graph.as_default():
                if saved:
                    v1.saved_model.load(self._session, list(model.tags), str(model.path))
                else:
                    from graph_tools.readers.graph_def import parse_graph_def

                    tf.import_graph_def(parse_graph_def(model.path), name="")
            # A function per signature; names are looked up once.
            self._feeds = {
                name: {key: self._graph.get_tensor_by_name(str(end.tensor)) for key, end in signature.inputs.items()}
                for name, signature in model.signatures.items()
            }
            self._fetches = {
                name: {key: self._graph.get_tensor_by_name(str(end.tensor)) for key, end in one.outputs.items()}
                for name, one in model.signatures.items()
            }
        except Exception as error:
            self._session.close()
            raise LoadError(first_line(error)) from error

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        return [_guarded(self._one, request, answered) for request in requests]

    def _one(self, request: Request) -> dict[str, Array]:
        feeds = {self._feeds[request.signature][key]: value for key, value in request.inputs.items()}
        outputs = self._session.run(self._fetches[request.signature], feeds)
        return {key: as_array(value) for key, value in outputs.items()}

    def trace(self, request: Request) -> Any:
        """Answer a request and return what TensorFlow noted of each node (StepStats)."""
        import tensorflow as tf

        v1 = tf.compat.v1
        feeds = {self._feeds[request.signature][key]: value for key, value in request.inputs.items()}
        noted = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        self._session.run(self._fetches[request.signature], feeds, options=options, run_metadata=noted)
        return noted.step_stats

    def close(self) -> None:
        self._session.close()
        self._feeds, self._fetches = {}, {}


def as_array(value: Any) -> Array:
    """Make an array of what a session gives: strings of rank 0 come as `bytes`."""
    if isinstance(value, bytes):
        made = np.empty((), object)
        made[()] = value
        return made
    return np.asarray(value)


def _guarded(one: Callable[[Request], dict[str, Array]], request: Request, answered: Answered) -> Answer:
    try:
        return one(request)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        return refusal
    finally:
        answered()


def refusal_of(error: Exception) -> Refusal | None:
    """Return what an error says of the request, or None where it says nothing of it.

    Shapes that do not fit are found by Python in one loader and by TensorFlow in another; both are the same refusal.
    """
    import tensorflow as tf

    if isinstance(error, (tf.errors.OpError,)):
        name = type(error).__name__.removesuffix("Error")
        code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
        return Refusal(code, first_line(error))
    if isinstance(error, (ValueError, TypeError, IndexError, OverflowError)):
        return Refusal("INVALID_ARGUMENT", first_line(error))
    return None


def first_line(error: BaseException) -> str:
    """Return the line of an error's text that says what is wrong: TensorFlow puts it before the node's name, after
    where the graph was made.
    """
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).splitlines()]
    marks = [number for number, line in enumerate(lines) if line.startswith("[[{{node")]
    said = [line for line in (lines[max(0, marks[0] - 1) :] if marks else lines) if line]
    return (said or [type(error).__name__])[0][:300]
