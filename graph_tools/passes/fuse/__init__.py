# SPDX-License-Identifier: Apache-2.0
"""The rewrites that `fuse` makes, one file each, in the order in which they run.

They run after the passes of `cut`, and replace subgraphs by ops of libprocessor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from graph_tools.options import FuseOptions
from graph_tools.passes.fuse.drop_field_reshapes import DropFieldReshapes
from graph_tools.passes.fuse.fuse_compressed_interactions import FuseCompressedInteractions
from graph_tools.passes.fuse.fuse_cross_networks import FuseCrossNetworks
from graph_tools.passes.fuse.fuse_dense_towers import FuseDenseTowers
from graph_tools.passes.fuse.fuse_dot_interactions import FuseDotInteractions
from graph_tools.passes.fuse.fuse_embedding_groups import FuseEmbeddingGroups
from graph_tools.passes.fuse.fuse_fm_interactions import FuseFmInteractions
from graph_tools.passes.fuse.fuse_head_attention import FuseHeadAttention
from graph_tools.passes.fuse.fuse_products import FuseProducts
from graph_tools.passes.fuse.fuse_recurrent_layers import FuseRecurrentLayers
from graph_tools.passes.fuse.fuse_sequence_pooling import FuseSequencePooling
from graph_tools.passes.fuse.fuse_target_attention import FuseTargetAttention
from graph_tools.passes.fuse.narrow_table_rows import NarrowTableRows
from graph_tools.passes.fuse.split_user_items import SplitUserItems
from graph_tools.rewriting.protocol import Pass

Make = Callable[[FuseOptions], Pass]


PASSES: tuple[tuple[type[Pass], Make], ...] = (
    # Interactions list the rows of one lookup many times. They are recognized before lookups become columns, and then
    # use the rows once. They also come before towers, which would mistake their products and sums for layers.
    (FuseProducts, lambda _: FuseProducts()),
    (FuseDotInteractions, lambda _: FuseDotInteractions()),
    (FuseFmInteractions, lambda _: FuseFmInteractions()),
    (FuseCompressedInteractions, lambda _: FuseCompressedInteractions()),
    (FuseCrossNetworks, lambda _: FuseCrossNetworks()),
    # Before lookups, since a candidate that is repeated for each position would be looked up for each.
    (FuseTargetAttention, lambda _: FuseTargetAttention()),
    # It removes the nodes that split and join heads, so that dense layers around it see rows.
    (FuseHeadAttention, lambda _: FuseHeadAttention()),
    # Loops separate the lookups and layers before them from those after them.
    (FuseRecurrentLayers, lambda _: FuseRecurrentLayers()),
    # After the passes that recognize one tensor used by several nodes, since the split makes two of it; before the
    # passes that would fuse both sides into one op.
    (SplitUserItems, lambda options: SplitUserItems(options.user_inputs)),
    # After it, the result of lookups is a tensor of columns, which the later passes use as it is.
    (FuseEmbeddingGroups, lambda _: FuseEmbeddingGroups()),
    # It looks at the rows of the tables that lookups have become.
    (NarrowTableRows, lambda _: NarrowTableRows()),
    # Columns were reshaped for interactions, whose fused ops accept columns directly.
    (DropFieldReshapes, lambda _: DropFieldReshapes()),
    # Pool the sequences that lookups have not pooled themselves.
    (FuseSequencePooling, lambda _: FuseSequencePooling()),
    # The dense layers that are left between the columns and the scores.
    (FuseDenseTowers, lambda _: FuseDenseTowers()),
)
"""The passes in order, each with its constructor and the reason for its place."""


def fusing_passes(options: FuseOptions) -> list[Pass]:
    """Return the passes of `fuse` in order."""
    return [make(options) for pass_, make in PASSES if pass_.name not in options.skip_passes]


def fusing_pass_names() -> dict[str, str]:
    """Return the names of the passes in order, with a one-line description of each."""
    return {pass_.name: (inspect.getdoc(pass_) or "").partition("\n")[0].rstrip(".") for pass_, _ in PASSES}
