# SPDX-License-Identifier: Apache-2.0
"""Check that a model is an export, whose tables and variables have the names of the training system."""

from __future__ import annotations

from graph_tools.errors import UsageError
from graph_tools.graph.op_library import our_ops
from graph_tools.model import Model
from graph_tools.report.manifest import PLACE as MANIFEST


def check_export(model: Model, way: str) -> None:
    """Raise `UsageError` if a model is not an export of a training system, but was converted before.

    Parameters
    ----------
    way : str
        How to get the same result from the export, for the message.
    """
    if "RecLiveModel" in our_ops(model.graph):
        raise UsageError(f"{model.path}: is live already, expected the export that it was made from; {way}")
    if model.extra is not None and (model.extra / MANIFEST.relative_to("assets.extra")).exists():
        raise UsageError(
            f"{model.path}: was written by graph-tools, which has changed its variables, expected the export of the "
            f"training system; {way}"
        )
