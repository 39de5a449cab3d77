# SPDX-License-Identifier: Apache-2.0
"""The rewrites that `fuse` makes, one file each, in the order in which they run.

They come after the passes of `cut`, and put ops of libprocessor in the place of subgraphs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib import import_module, util

from graph_tools.errors import UsageError
from graph_tools.options import FuseOptions
from graph_tools.passes.base import Pass

Make = Callable[[type[Pass], FuseOptions], Pass]


def _plain(made: type[Pass], _: FuseOptions) -> Pass:
    return made()


# Name of the pass and of its module, and how it is made; the class is the name in CamelCase.
_PASSES: tuple[tuple[str, Make], ...] = (
    # First: what is left of a lookup after it is a tensor of columns, which the others take as it is.
    ("fuse_embedding_groups", _plain),
    # Before towers, which would take the products and sums of an interaction for layers.
    ("fuse_interactions", _plain),
    ("fuse_sequences", _plain),
    # Whatever dense layers are left, between the columns and the scores.
    ("fuse_dense_towers", _plain),
    # Last: it decides for whole fused ops whether they are the user's or the item's.
    ("split_user_items", _plain),
)


def fusing_passes(options: FuseOptions) -> list[Pass]:
    """Return the passes of `fuse` in order."""
    return [
        make(_class(name), options) for name, make in _PASSES if _is_there(name) and name not in options.skip_passes
    ]


def fusing_pass_names() -> dict[str, str]:
    """Return the names of the passes in order, with what each does in a line."""
    return {name: _summary(_class(name)) for name, _ in _PASSES if _is_there(name)}


def check_skipped(names: Iterable[str]) -> None:
    """Raise `UsageError` for a name that is of no fusing pass."""
    known = fusing_pass_names()
    for name in names:
        if name not in known:
            raise UsageError(f"--skip-pass {name}: no such pass, expected one of: {', '.join(known) or 'none'}")


def _is_there(name: str) -> bool:
    return util.find_spec(f"graph_tools.passes.{name}") is not None


def _class(name: str) -> type[Pass]:
    found: type[Pass] = getattr(import_module(f"graph_tools.passes.{name}"), name.title().replace("_", ""))
    return found


def _summary(made: type[Pass]) -> str:
    return (inspect.getdoc(made) or "").partition("\n")[0].rstrip(".")
