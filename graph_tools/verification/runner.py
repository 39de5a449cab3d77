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
from graph_tools.lean_start import allow_keras
from graph_tools.model import Model
from graph_tools.readers.saved_model import is_saved_model
from graph_tools.tensors import Array
from graph_tools.verification.request import Request

V2_LOADER, SESSION, GRAPH_DEF = "tf.saved_model.load", "session", "session on a GraphDef"


@dataclass(frozen=True)
class Refusal:
    """The refusal of a request by a model.

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
    """An object that runs requests on a model.

    Attributes
    ----------
    how : str
        How it runs the model, in words for the report.
    """

    how: str

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        """Run requests in order and return their results; `answered` is called after each."""
        ...

    def close(self) -> None:
        """Release the model's memory."""
        ...


class LoadError(Exception):
    """TensorFlow cannot load the model in this way."""


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of TensorFlow's loaders about deprecated parts of their own API."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def foreign_ops(model: Model) -> list[str]:
    """Return the ops of a graph that neither TensorFlow nor a loaded library has."""
    library = model.graph.library
    ops = {node.op for node in model.graph} | {node.op for function in library.values() for node in function.node_def}
    return sorted(op for op in ops if not is_native(op) and op not in library)


class V2Runner:
    """Runs a SavedModel that is loaded by TensorFlow 2, with its object graph."""

    def __init__(self, model: Model) -> None:
        import tensorflow as tf

        self.how = V2_LOADER
        self._signatures = model.signatures
        # The loader imports Keras if the model has an optimizer of Keras 2.
        allow_keras()
        try:
            self._loaded = tf.saved_model.load(str(model.path), tags=list(model.tags))
            self._functions = {name: self._loaded.signatures[name] for name in model.signatures}
        # An export of another version may raise any kind of error.
        except Exception as error:
            raise LoadError(first_line(error)) from error

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        return [_answer(self._run_one, request, answered) for request in requests]

    def _run_one(self, request: Request) -> dict[str, Array]:
        import tensorflow as tf

        inputs = self._signatures[request.signature].inputs
        feeds = {key: tf.constant(value, inputs[key].dtype) for key, value in request.inputs.items()}
        outputs = self._functions[request.signature](**feeds)
        return {key: as_array(outputs[key].numpy()) for key in self._signatures[request.signature].outputs}

    def close(self) -> None:
        self._functions, self._loaded = {}, None


class SessionRunner:
    """Runs a graph in a session, as serving systems do: a SavedModel without its object graph, or a GraphDef."""

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
            # Names are looked up once, for each signature.
            self._feeds = {
                name: {key: self._graph.get_tensor_by_name(str(end.tensor)) for key, end in signature.inputs.items()}
                for name, signature in model.signatures.items()
            }
            self._fetches = {
                name: {key: self._graph.get_tensor_by_name(str(end.tensor)) for key, end in signature.outputs.items()}
                for name, signature in model.signatures.items()
            }
        except Exception as error:
            self._session.close()
            raise LoadError(first_line(error)) from error

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        return [_answer(self._run_one, request, answered) for request in requests]

    def _run_one(self, request: Request) -> dict[str, Array]:
        feeds = {self._feeds[request.signature][key]: value for key, value in request.inputs.items()}
        outputs = self._session.run(self._fetches[request.signature], feeds)
        return {key: as_array(value) for key, value in outputs.items()}

    def trace(self, request: Request) -> Any:
        """Run a request and return TensorFlow's trace of each node (StepStats)."""
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
    """Return an array of a session's output; a string of rank 0 is `bytes` there."""
    if isinstance(value, bytes):
        made = np.empty((), object)
        made[()] = value
        return made
    return np.asarray(value)


def _answer(run: Callable[[Request], dict[str, Array]], request: Request, answered: Answered) -> Answer:
    try:
        return run(request)
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        return refusal
    finally:
        answered()


def refusal_of(error: Exception) -> Refusal | None:
    """Return the refusal that an error means, or None if the error is not about the request.

    One loader finds shapes that do not fit in Python, another in TensorFlow; both are the same refusal.
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
    """Return the line of an error's text that describes the fault.

    TensorFlow puts this line before the line with the node's name, and after the lines that say where the graph was
    built.
    """
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).splitlines()]
    marks = [number for number, line in enumerate(lines) if line.startswith("[[{{node")]
    said = [line for line in (lines[max(0, marks[0] - 1) :] if marks else lines) if line]
    return (said or [type(error).__name__])[0][:300]
