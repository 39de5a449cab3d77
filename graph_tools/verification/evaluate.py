# SPDX-License-Identifier: Apache-2.0
"""Run one request as the source would: a conversion must keep this output."""

from __future__ import annotations

from collections.abc import Mapping

from graph_tools.errors import VerificationError
from graph_tools.model import Model
from graph_tools.tensors import Array
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Refusal
from graph_tools.verification.staged import StagedRunner


def evaluate(model: Model, signature: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a signature with its sparse lookups in NumPy and the rest of the graph in TensorFlow.

    Parameters
    ----------
    model : Model
        Model from `read_model`, or after any pass.
    signature : str
    feeds : mapping of str to ndarray
        Inputs, by key of the signature.

    Returns
    -------
    dict of str to ndarray
        Outputs, by key of the signature.

    Raises
    ------
    VerificationError
        TensorFlow refuses the request.
    """
    runner = StagedRunner(model)
    try:
        answer = runner.run([Request(signature, feeds, "evaluate")], lambda: None)[0]
    finally:
        runner.close()
    if isinstance(answer, Refusal):
        raise VerificationError(f"{model.path}: {answer.code}: {answer.message}, expected an answer", {})
    return answer
