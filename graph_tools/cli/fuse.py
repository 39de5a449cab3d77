# SPDX-License-Identifier: Apache-2.0
"""`graph-tools fuse`."""

from __future__ import annotations

from graph_tools.cli.app import verb
from graph_tools.cli.groups import given
from graph_tools.cli.options import MemoryLimit, PassOptions, PathOptions, ProofOptions, memory_bytes
from graph_tools.cli.options_fuse import FusionOptions
from graph_tools.cli.output import OutputOptions, deliver_conversion

_HELP = """Replace lookups and layers by ops of libprocessor, and prove that scores stay equal.

IN need not be cut before. OUT runs in libprocessor, and in stock TensorFlow after `tf.load_op_library`. Parts that are
not recognized stay as they are; `--explain` gives the reasons.

The result is compared with the source before it is put in place: if their outputs differ, the exit code is 1 and OUT is
not written. IN is only read.

**Examples**

- `graph-tools fuse cut/7 fused/7`: verified, in bf16 if that keeps the order of scores
- `graph-tools fuse cut/7 fused/7 --requests ratings.npz`: in int8 if that keeps the order of these requests' scores
- `graph-tools fuse cut/7 --dry-run --explain`: list what would be fused and what would not
- `graph-tools fuse cut/7 fused/7 --precision fp32 --table-store tables`
- `graph-tools fuse cut/7 fused/7 --requests ratings.npz --user-inputs user_id,age`
"""


@verb("fuse", _HELP)
def fuse_command(
    *,
    paths: PathOptions,
    fusion: FusionOptions,
    passes: PassOptions,
    memory_limit: MemoryLimit = 4.0,
    proof: ProofOptions,
    output: OutputOptions,
) -> int:
    from graph_tools.verbs.fuse import fuse

    memory = memory_bytes(memory_limit)
    return deliver_conversion(
        lambda progress: fuse(
            paths.source,
            paths.target,
            memory_limit=memory,
            skip_passes=passes.skip_passes or (),
            **fusion.arguments(),
            **given(proof),
            progress=progress,
        ),
        output,
        fusion.render,
    )
