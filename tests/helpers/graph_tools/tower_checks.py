# SPDX-License-Identifier: Apache-2.0
"""Test towers: export, cut, fuse twice, and compare scores with those of the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph.op_library import load_library
from graph_tools.model import Model
from graph_tools.options import CutOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.fuse.fuse_dense_towers import FuseDenseTowers
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import PassResult
from graph_tools.verbs.cut import rewrite
from graph_tools.writer import write_saved_model
from helpers.graph_tools.pass_checks import all_answers
from helpers.graph_tools.stock_answers import Feeds
from helpers.models.idiom_models import KEY
from helpers.oracles.outputs import assert_same_outputs
from helpers.oracles.tower_reference import TOWER, plans_of, reference_answers
from helpers.system.programs import LIBRARY

#: Ops that contain operands of others or only pass values on.
PLAIN = {"Placeholder", "Const", "VarHandleOp", "ReadVariableOp", "Identity", "IdentityN", TOWER}


def fused(source: Path, cut: bool = True) -> tuple[Model, PassResult]:
    """Cut a model, fuse it, and check that fusing it again changes nothing."""
    model = read_model(source)
    if cut:
        rewrite(model, CutOptions(keep_graph_names=True))
    else:
        PruneUnreachable().apply(model)
    pass_ = FuseDenseTowers()
    result = pass_.apply(model)
    names = set(model.graph.nodes)
    assert pass_.apply(model).applied == 0
    assert set(model.graph.nodes) == names
    assert all(why for _, why in model.graph.removed.values())
    assert result.applied == len(model.graph.of(TOWER))
    return model, result


def towers(
    source: Path, feeds: list[Feeds], *, signature: str = KEY, cut: bool = True, out: Path | None = None
) -> tuple[list[dict[str, Any]], set[str], PassResult]:
    """Fuse a model and compare its scores with the source's, once with the kernel and once with NumPy.

    The fused model is written below `out`, or to the folder of the source. Return the plans, the remaining ops, and the
    result of the pass.
    """
    load_library(LIBRARY)
    model, result = fused(source, cut)
    plans, left = plans_of(model), {node.op for node in model.graph} - PLAIN
    folder = out or source.with_name("towers")
    write_saved_model(model, folder / "kernel")
    wanted = all_answers(source, feeds, signature)
    _assert_alike(wanted, all_answers(folder / "kernel", feeds, signature))
    _assert_alike(wanted, reference_answers(model, folder / "reference", feeds, signature))
    return plans, left, result


def _assert_alike(wanted: list[dict[str, np.ndarray]], found: list[dict[str, np.ndarray]]) -> None:
    for before, after in zip(wanted, found, strict=True):
        assert_same_outputs(after, before)


def layers(plans: list[dict[str, Any]]) -> list[str]:
    """Return the layers of the only plan, each with its activation: `dense relu`."""
    (plan,) = plans
    return [
        " ".join([layer["op"], *([layer["activation"]["kind"]] if "activation" in layer else [])])
        for layer in plan["layers"]
    ]
