# SPDX-License-Identifier: Apache-2.0
"""`graph-tools fuse`."""

from __future__ import annotations

from graph_tools.cli.app import app, guarded
from graph_tools.cli.options import (
    AcceptWeakProof,
    Json,
    MemoryLimit,
    OpLibrary,
    Report,
    Requests,
    Samples,
    Seed,
    Source,
    Target,
    Tolerance,
    Verify,
    converted,
    memory_bytes,
)
from graph_tools.cli.options_cut import DryRun
from graph_tools.cli.options_fuse import (
    Explain,
    ListPasses,
    Precision,
    SkipPass,
    TableStore,
    UserInputs,
    names,
    show,
)

_HELP = """Put libprocessor's ops in the place of lookups and layers, and prove that scores stay equal.

IN may be cut or not. OUT runs in libprocessor, and in stock TensorFlow after `tf.load_op_library`. A part that is not
recognized stays as it is; `--explain` says why.

The result is compared with the source before it is put in place; where it answers differently, the exit code is 1 and
OUT is not there. IN is only read.

**Examples**

- `graph-tools fuse cut/7 fused/7`: verified; bf16 if scores keep their order
- `graph-tools fuse cut/7 --dry-run --explain`: what would be fused, and what not
- `graph-tools fuse cut/7 fused/7 --precision fp32 --table-store tables`
- `graph-tools fuse cut/7 fused/7 --requests ratings.npz --user-inputs user_id,age`
"""


@app.command(name="fuse", help=_HELP)
@guarded
def fuse_command(
    source: Source,
    target: Target = None,
    precision: Precision = "auto",
    skip_pass: SkipPass = None,
    list_passes: ListPasses = False,
    explain: Explain = False,
    table_store: TableStore = None,
    user_inputs: UserInputs = None,
    op_library: OpLibrary = None,
    dry_run: DryRun = False,
    report: Report = None,
    memory_limit: MemoryLimit = 4.0,
    requests: Requests = None,
    samples: Samples = 32,
    tolerance: Tolerance = None,
    verify: Verify = True,
    accept_weak_proof: AcceptWeakProof = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.fuse import fuse

    memory = memory_bytes(memory_limit)
    return converted(
        lambda told: fuse(
            source,
            target,
            precision=precision,
            skip_passes=skip_pass or (),
            requests=requests or (),
            samples=samples,
            tolerance=tolerance,
            table_store=table_store,
            op_library=op_library,
            user_inputs=names(user_inputs),
            memory_limit=memory,
            dry_run=dry_run,
            check=verify,
            accept_weak_proof=accept_weak_proof,
            seed=seed,
            timing=explain,
            progress=told,
        ),
        report,
        as_json,
        lambda data: show(data, explain),
    )
