# SPDX-License-Identifier: Apache-2.0
"""`graph-tools optimize`."""

from __future__ import annotations

from graph_tools.cli.app import verb
from graph_tools.cli.groups import given
from graph_tools.cli.options import MemoryLimit, Passes, Place, Proved
from graph_tools.cli.options_cut import Kept, Stored
from graph_tools.cli.options_fuse import Fused
from graph_tools.cli.output import Output, deliver_conversion

_HELP = """Cut a model, fuse it, and verify the result against the source, in one step.

The options are those of `graph-tools cut` and `graph-tools fuse`. No other files than OUT are kept.

**Examples**

- `graph-tools optimize export/7 served/7`
- `graph-tools optimize export/7 served/7 --embedding-dtype int8 --requests ratings.npz --report optimized.json`
"""


@verb("optimize", _HELP)
def optimize_command(
    *,
    place: Place,
    kept: Kept,
    stored: Stored,
    fused: Fused,
    passes: Passes,
    memory_limit: MemoryLimit = 4.0,
    proved: Proved,
    output: Output,
) -> int:
    from graph_tools.verbs.fuse import optimize

    options = stored.options(memory_limit)
    return deliver_conversion(
        lambda progress: optimize(
            place.source,
            place.target,
            **given(kept),
            options=options,
            skip_passes=passes.skip_passes or (),
            **fused.arguments(),
            **given(proved),
            progress=progress,
        ),
        output,
        fused.render,
    )
