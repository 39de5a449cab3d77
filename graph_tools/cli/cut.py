# SPDX-License-Identifier: Apache-2.0
"""`graph-tools cut`."""

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
from graph_tools.cli.options_fuse import ListCutPasses, SkipPass
from graph_tools.cli.render_cut import render_cut
from graph_tools.cli.terminal import console

_HELP = """Cut an exported model down to what serving needs, and prove that scores stay equal.

Reads TF 1 and TF 2 SavedModels and frozen GraphDefs, with the sparse tables of DeepRec, TFPlus, TFRA, Monolith,
TensorNet and HugeCTR HPS, without any custom op library. Writes a SavedModel that stock TensorFlow runs, with the names
and dtypes of inputs and outputs as they were.

The result is compared with the source before it is put in place; where it answers differently, the exit code is 1 and
OUT is not there. IN is only read.

**Examples**

- `graph-tools cut export/7 cut/7`: lossless, verified
- `graph-tools cut export/7 --dry-run`: forecast the bytes of each table, write nothing
- `graph-tools cut export/7 cut/7 --embedding-dtype int8 --tensor-type 'user_id*=bf16' --tolerance 1e-2,1e-2`
- `graph-tools cut export/7 cut/7 --checkpoint training/model.ckpt-90000`
- `graph-tools cut deeprec/1 cut/1 --absent-key item_emb=zero --report cut.json`
"""


@app.command(name="cut", help=_HELP)
@guarded
def cut_command(
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
    skip_pass: SkipPass = None,
    list_passes: ListCutPasses = False,
    report: Report = None,
    memory_limit: MemoryLimit = 4.0,
    requests: Requests = None,
    samples: Samples = 32,
    tolerance: Tolerance = None,
    verify: Verify = True,
    accept_weak_proof: AcceptWeakProof = False,
    seed: Seed = 0,
    op_library: OpLibrary = None,
    as_json: Json = False,
) -> int:
    from graph_tools.verbs.cut import cut

    options = cut_options(
        embedding_dtype,
        tensor_type,
        absent_key,
        min_norm,
        min_frequency,
        keep_graph_names,
        memory_limit,
        skip_pass or (),
    )
    return converted(
        lambda told: cut(
            source,
            target,
            signatures=tuple(signature or ()),
            outputs=tuple(outputs or ()),
            checkpoint=checkpoint,
            options=options,
            requests=requests or (),
            samples=samples,
            tolerance=tolerance,
            dry_run=dry_run,
            check=verify,
            accept_weak_proof=accept_weak_proof,
            seed=seed,
            op_library=op_library,
            progress=told,
        ),
        report,
        as_json,
        lambda data: render_cut(data, console()),
    )
