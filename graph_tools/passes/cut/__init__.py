# SPDX-License-Identifier: Apache-2.0
"""The rewrites that `cut` makes, one file each, in the order in which they run."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from graph_tools.errors import UsageError
from graph_tools.options import NEEDED_PASSES, CutOptions
from graph_tools.passes.cut.collapse_negative_index_fixup import CollapseNegativeIndexFixup
from graph_tools.passes.cut.collapse_partitioned_lookups import CollapsePartitionedLookups
from graph_tools.passes.cut.collapse_ragged_strings import CollapseRaggedStrings
from graph_tools.passes.cut.collapse_safe_embedding_lookup import CollapseSafeEmbeddingLookup
from graph_tools.passes.cut.collapse_single_valued_columns import CollapseSingleValuedColumns
from graph_tools.passes.cut.collapse_sparse_to_dense import CollapseSparseToDense
from graph_tools.passes.cut.collapse_unique import CollapseUnique
from graph_tools.passes.cut.collapse_weighted_lookup import CollapseWeightedLookup
from graph_tools.passes.cut.collapse_zeros_like import CollapseZerosLike
from graph_tools.passes.cut.compress_tables import CompressTables
from graph_tools.passes.cut.convert_sparse_lookups import ConvertSparseLookups
from graph_tools.passes.cut.eliminate_assertions import EliminateAssertions
from graph_tools.passes.cut.eliminate_control_inputs import EliminateControlInputs
from graph_tools.passes.cut.eliminate_dead_branches import EliminateDeadBranches
from graph_tools.passes.cut.eliminate_dropout import EliminateDropout
from graph_tools.passes.cut.eliminate_identities import EliminateIdentities
from graph_tools.passes.cut.eliminate_noop_reshapes import EliminateNoopReshapes
from graph_tools.passes.cut.fold_batch_norms import FoldBatchNorms
from graph_tools.passes.cut.fold_constants import FoldConstants
from graph_tools.passes.cut.merge_duplicates import MergeDuplicates
from graph_tools.passes.cut.move_constants import MoveConstants
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.cut.shorten_names import ShortenNames
from graph_tools.passes.cut.use_resource_variables import UseResourceVariables
from graph_tools.rewriting.protocol import Pass, PassResult, run_passes
from graph_tools.tables.analysis import Progress


def serving_passes(options: CutOptions, progress: Progress | None = None) -> list[Pass]:
    """Return the passes of `cut` in order, with the reason for each place; report table bytes to `progress`."""
    passes: list[Pass] = [
        # First, so that no other pass processes savers, losses and other signatures.
        PruneUnreachable(),
        # The other passes handle resource variables only.
        UseResourceVariables(),
        # Remove nodes without effect between a lookup and its consumer. Branches that are never taken are removed once
        # the defaults that decide them are known; an inlined branch brings new control inputs and identities.
        EliminateAssertions(),
        EliminateControlInputs(),
        EliminateIdentities(),
        EliminateDeadBranches(),
        EliminateControlInputs(),
        EliminateIdentities(),
        # The idioms of sparse lookups: partitions first, since the others handle lookups in one table; then sparse
        # tensors, before their lookups; then the longest idiom first, since a shorter one is part of a longer one.
        CollapsePartitionedLookups(),
        CollapseRaggedStrings(),
        CollapseSingleValuedColumns(),
        CollapseSafeEmbeddingLookup(),
        CollapseSparseToDense(),
        CollapseWeightedLookup(),
        CollapseZerosLike(),
        CollapseUnique(),
        CollapseNegativeIndexFixup(),
        # Up to this point, tables of frozen graphs are constants.
        MoveConstants(),
        # Lookups are in their simplest form: now rewrite the tables. Custom ops come first, since later passes handle
        # TensorFlow's ops only.
        ConvertSparseLookups(options, progress),
        CompressTables(options, progress),
        # Idioms and tables leave constants and reshapes behind; dropout needs its rate folded.
        FoldConstants(),
        EliminateDeadBranches(),
        EliminateDropout(),
        EliminateNoopReshapes(),
        EliminateControlInputs(),
        EliminateIdentities(),
        FoldConstants(),
        # Merge equal branches before a fold checks whether weights have another user.
        MergeDuplicates(),
        FoldBatchNorms(),
        EliminateIdentities(),
        MergeDuplicates(),
        PruneUnreachable(),
        # Move weights that a fold turned into constants out of the graph; last, since folding reads constants.
        MoveConstants(),
    ]
    if not options.keep_graph_names:
        passes.append(ShortenNames())
    return passes


def cutting_pass_names() -> dict[str, str]:
    """Return the names of the passes that may be skipped, in order, with a one-line description of each."""
    passes = [pass_ for pass_ in serving_passes(CutOptions()) if pass_.name not in NEEDED_PASSES]
    return {pass_.name: (inspect.getdoc(pass_) or "").partition("\n")[0].rstrip(".") for pass_ in passes}


def check_skipped(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `UsageError` for a name that is not the name of a pass that may be skipped."""
    known = list(known)
    for name in names:
        if name in NEEDED_PASSES:
            raise UsageError(f"--skip-pass {name}: nothing can be written without it, expected another pass")
        if name not in known:
            raise UsageError(f"--skip-pass {name}: no such pass, expected one of: {', '.join(known) or 'none'}")


__all__ = ["Pass", "PassResult", "check_skipped", "cutting_pass_names", "run_passes", "serving_passes"]
