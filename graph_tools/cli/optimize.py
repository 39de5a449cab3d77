# SPDX-License-Identifier: Apache-2.0
"""`graph-tools optimize`."""

from __future__ import annotations

from graph_tools.cli.app import verb
from graph_tools.cli.groups import given
from graph_tools.cli.options import MemoryLimit, PassOptions, PathOptions, ProofOptions
from graph_tools.cli.options_cut import SelectionOptions, StorageOptions, TimelineOptions
from graph_tools.cli.options_fuse import FusionOptions
from graph_tools.cli.output import OutputOptions, deliver_conversion

_HELP = """Cut a model, fuse it, and verify the result against the source, in one step.

The options are those of `graph-tools cut` and `graph-tools fuse`. No other files than OUT are kept.

**Examples**

- `graph-tools optimize export/7 served/7`
- `graph-tools optimize export/7 served/7 --embedding-dtype int8 --requests ratings.npz --report optimized.json`
"""


@verb("optimize", _HELP)
def optimize_command(
    *,
    paths: PathOptions,
    selection: SelectionOptions,
    epoch: TimelineOptions,
    storage: StorageOptions,
    fusion: FusionOptions,
    passes: PassOptions,
    memory_limit: MemoryLimit = 4.0,
    proof: ProofOptions,
    output: OutputOptions,
) -> int:
    from graph_tools.verbs.fuse import optimize

    options = storage.options(memory_limit)
    return deliver_conversion(
        lambda progress: optimize(
            paths.source,
            paths.target,
            **given(selection),
            **given(epoch),
            options=options,
            skip_passes=passes.skip_passes or (),
            **fusion.arguments(),
            **given(proof),
            progress=progress,
        ),
        output,
        fusion.render,
    )
