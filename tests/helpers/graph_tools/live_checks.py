# SPDX-License-Identifier: Apache-2.0
"""Check that a rewritten model follows its source variables: each weight is a formula of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graph_tools.analysis.contractions import drop_marks, mark_contractions
from graph_tools.graph import Output, attribute
from graph_tools.graph.op_library import load_library
from graph_tools.model import Model
from graph_tools.options import CutOptions, FuseOptions
from graph_tools.passes.cut import serving_passes
from graph_tools.passes.cut.move_constants import MoveConstants
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.fuse import fusing_passes
from graph_tools.readers import read_model
from graph_tools.rewriting.follow_variables import follow_variables, settle_weights
from graph_tools.rewriting.protocol import Pass, run_passes
from graph_tools.tensors import Array, ArrayTensor
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import Feeds, all_answers
from helpers.models.idiom_models import KEY
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import LIBRARY

KEPT_NAMES = CutOptions(keep_graph_names=True)

Rewrite = Callable[[Model], object]


def fused(model: Model, user_inputs: tuple[str, ...] = (), options: CutOptions = KEPT_NAMES) -> None:
    """Run all passes of `cut` and `fuse`."""
    mark_contractions(model)
    run_passes(model, serving_passes(options))
    run_passes(model, fusing_passes(FuseOptions(user_inputs=user_inputs)))
    drop_marks(model.graph)
    run_passes(model, [PruneUnreachable(), MoveConstants()])


def by(*passes: Pass) -> Rewrite:
    """Run some passes only."""
    return lambda model: run_passes(model, [PruneUnreachable(), *passes])


def perturbed(name: str, value: Array) -> Array:
    """Return other values of a variable, of about the same size; those of a variance stay positive."""
    random = np.random.default_rng(len(name) + value.size)
    added = random.uniform(-0.05, 0.05, value.shape)
    added = np.abs(added) if np.all(value >= 0) else added
    return (value * random.uniform(0.5, 1.5, value.shape) + added).astype(value.dtype)


def check_follows(
    source: Path, feeds: list[Feeds], rewrite: Rewrite = fused, *, signature: str = KEY, out: Path | None = None
) -> tuple[Model, dict[str, Output]]:
    """Follow a model's variables through passes, and return the rewritten model and the formula of each weight.

    With other values of the variables, the formulas give bit by bit the weights that the passes compute from these
    values, and the outputs of the source with these values.
    """
    load_library(LIBRARY)
    model, formulas = followed(read_model(source), rewrite)
    assert model.live is not None
    in_plans = [output for outputs in model.live.of_plans.values() for output in outputs if output is not None]
    sources = model.live.sources_of([*formulas.values(), *in_plans])
    values = {name: perturbed(name, model.live.sources[name].read()) for name in sources}
    found = dict(zip(formulas, model.live.evaluate(list(formulas.values()), values), strict=True))
    again, repeated = followed(changed(read_model(source), values), rewrite)
    assert repeated == formulas
    for name, value in found.items():
        np.testing.assert_array_equal(value, again.variables[name].read(), err_msg=name, strict=True)
    model.variables |= {name: ArrayTensor(value) for name, value in found.items()}
    for node, numbers in model.live.of_plans.items():
        _change_plan(model, node, numbers, values)
    folder = out or source
    expected = changed(read_model(source), values)
    # Exports may have variables that are not restored, since nothing reads them.
    PruneUnreachable().apply(expected)
    write_saved_model(expected, folder.with_name("perturbed"))
    write_saved_model(model, folder.with_name("followed"))
    pairs = (all_answers(folder.with_name(name), feeds, signature) for name in ("perturbed", "followed"))
    for before, after in zip(*pairs, strict=True):
        assert_same_outputs(after, before, exact=False)
    return model, formulas


def _change_plan(model: Model, name: str, formulas: list[Output | None], values: dict[str, Array]) -> None:
    """Compute the numbers of a group's plan from other values of the variables."""
    assert model.live is not None
    node = model.graph[name]
    plan = json.loads(attribute(node, "plan"))
    for formula, part in zip(formulas, [*plan["outputs"], *plan["columns"]], strict=True):
        if formula is not None:
            (value,) = model.live.evaluate([formula], values)
            key = "initial" if "initial" in part else "weights"
            assert np.shape(part[key]) == value.shape
            part[key] = value.tolist()
    model.graph.set_attr(node, "plan", json.dumps(plan))


def followed(model: Model, rewrite: Rewrite) -> tuple[Model, dict[str, Output]]:
    """Rewrite a model that follows its variables."""
    follow_variables(model)
    rewrite(model)
    return model, settle_weights(model)


def changed(model: Model, values: dict[str, Array]) -> Model:
    """Give variables of a model other values."""
    model.variables |= {name: ArrayTensor(value) for name, value in values.items()}
    return model
