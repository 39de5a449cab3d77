# SPDX-License-Identifier: Apache-2.0
"""The rewrites that `fuse` makes, one file each, in the order in which they run.

They come after the passes of `cut`, and put ops of libprocessor in the place of subgraphs.
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
from graph_tools.passes.fuse.split_user_items import SplitUserItems
from graph_tools.rewriting.protocol import Pass

Make = Callable[[FuseOptions], Pass]


PASSES: tuple[tuple[type[Pass], Make], ...] = (
    # Interactions list the rows of one lookup many times: they are recognized before lookups become columns, and then
    # take them once. Before towers, too, which would take their products and sums for layers.
    (FuseProducts, lambda _: FuseProducts()),
    (FuseDotInteractions, lambda _: FuseDotInteractions()),
    (FuseFmInteractions, lambda _: FuseFmInteractions()),
    (FuseCompressedInteractions, lambda _: FuseCompressedInteractions()),
    (FuseCrossNetworks, lambda _: FuseCrossNetworks()),
    # A candidate that is repeated for each position would be looked up as often.
    (FuseTargetAttention, lambda _: FuseTargetAttention()),
    # What takes heads apart and joins them goes with it, and dense layers around it see rows.
    (FuseHeadAttention, lambda _: FuseHeadAttention()),
    # Loops keep lookups and layers before and after them apart.
    (FuseRecurrentLayers, lambda _: FuseRecurrentLayers()),
    # After what is recognized by one tensor that several nodes take, of which the user's side makes two; before what
    # makes an op of both sides.
    (SplitUserItems, lambda options: SplitUserItems(options.user_inputs)),
    # What is left of a lookup after it is a tensor of columns, which the others take as it is.
    (FuseEmbeddingGroups, lambda _: FuseEmbeddingGroups()),
    # Columns were reshaped for interactions that take them as they are.
    (DropFieldReshapes, lambda _: DropFieldReshapes()),
    # What lookups have not pooled themselves.
    (FuseSequencePooling, lambda _: FuseSequencePooling()),
    # Whatever dense layers are left, between the columns and the scores.
    (FuseDenseTowers, lambda _: FuseDenseTowers()),
)
"""The passes in order, each with how it is made and the reason for its place."""


def fusing_passes(options: FuseOptions) -> list[Pass]:
    """Return the passes of `fuse` in order."""
    return [make(options) for one, make in PASSES if one.name not in options.skip_passes]


def fusing_pass_names() -> dict[str, str]:
    """Return the names of the passes in order, with what each does in a line."""
    return {one.name: (inspect.getdoc(one) or "").partition("\n")[0].rstrip(".") for one, _ in PASSES}
