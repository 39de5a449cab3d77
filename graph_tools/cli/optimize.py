# SPDX-License-Identifier: Apache-2.0
"""`graph-tools optimize`."""

from __future__ import annotations

from graph_tools.cli.app import app, guarded
from graph_tools.cli.options import (
    AcceptWeakProof,
    Checkpoint,
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
)
from graph_tools.cli.options_cut import (
    AbsentKey,
    DryRun,
    EmbeddingDtype,
    KeepGraphNames,
    MinFrequency,
    MinNorm,
    Outputs,
    Signature,
    TensorType,
    cut_options,
)
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

_HELP = """Cut a model, fuse it and verify the result against the source, in one go.

The options are those of `graph-tools cut` and `graph-tools fuse`. Nothing is left beside OUT.

**Examples**

- `graph-tools optimize export/7 served/7`
- `graph-tools optimize export/7 served/7 --embedding-dtype int8 --requests ratings.npz --report optimized.json`
"""


@app.command(name="optimize", help=_HELP)
@guarded
def optimize_command(
    source: Source,
    target: Target = None,
    signature: Signature = None,
    outputs: Outputs = None,
    checkpoint: Checkpoint = None,
    dry_run: DryRun = False,
    absent_key: AbsentKey = None,
    embedding_dtype: EmbeddingDtype = "fp32",
    tensor_type: TensorType = None,
    min_norm: MinNorm = 0.0,
    min_frequency: MinFrequency = 0,
    keep_graph_names: KeepGraphNames = False,
    precision: Precision = "auto",
    skip_pass: SkipPass = None,
    list_passes: ListPasses = False,
    explain: Explain = False,
    table_store: TableStore = None,
    user_inputs: UserInputs = None,
    op_library: OpLibrary = None,
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
    from graph_tools.verbs.fuse import optimize

    options = cut_options(
        embedding_dtype, tensor_type, absent_key, min_norm, min_frequency, keep_graph_names, memory_limit
    )
    return converted(
        lambda told: optimize(
            source,
            target,
            signatures=tuple(signature or ()),
            outputs=tuple(outputs or ()),
            checkpoint=checkpoint,
            options=options,
            precision=precision,
            skip_passes=skip_pass or (),
            requests=requests or (),
            samples=samples,
            tolerance=tolerance,
            table_store=table_store,
            op_library=op_library,
            user_inputs=names(user_inputs),
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
