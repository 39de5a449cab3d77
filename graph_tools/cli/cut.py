# SPDX-License-Identifier: Apache-2.0
"""`graph-tools cut`."""

from __future__ import annotations

from graph_tools.cli.app import verb
from graph_tools.cli.groups import given
from graph_tools.cli.options import MemoryLimit, PassOptions, PathOptions, ProofOptions
from graph_tools.cli.options_cut import SelectionOptions, StorageOptions, TimelineOptions
from graph_tools.cli.output import OutputOptions, deliver_conversion
from graph_tools.cli.render_cut import render_cut
from graph_tools.cli.terminal import console

_HELP = """Cut an exported model down to what serving needs, and prove that scores stay equal.

Reads TF 1 and TF 2 SavedModels and frozen GraphDefs, with the sparse tables of DeepRec, TFPlus, TFRA, Monolith,
TensorNet and HugeCTR HPS, without any custom op library. Writes a SavedModel that stock TensorFlow runs, with the same
names and dtypes of inputs and outputs.

The result is compared with the source before it is put in place: if their outputs differ, the exit code is 1 and OUT is
not written. IN is only read.

**Examples**

- `graph-tools cut export/7 cut/7`: without loss, verified
- `graph-tools cut export/7 --dry-run`: forecast the bytes of each table, and write nothing
- `graph-tools cut export/7 cut/7 --embedding-dtype int8 --tensor-type 'user_id*=bf16' --tolerance 1e-2,1e-2`
- `graph-tools cut export/7 cut/7 --checkpoint training/model.ckpt-90000`
- `graph-tools cut deeprec/1 cut/1 --absent-key item_emb=zero --report cut.json`
"""


@verb("cut", _HELP)
def cut_command(
    *,
    paths: PathOptions,
    selection: SelectionOptions,
    epoch: TimelineOptions,
    storage: StorageOptions,
    passes: PassOptions,
    memory_limit: MemoryLimit = 4.0,
    proof: ProofOptions,
    output: OutputOptions,
) -> int:
    return deliver_cut(paths, selection, epoch, storage, passes, memory_limit, proof, output)


def deliver_cut(
    paths: PathOptions,
    selection: SelectionOptions,
    epoch: TimelineOptions,
    storage: StorageOptions,
    passes: PassOptions,
    memory_limit: float,
    proof: ProofOptions,
    output: OutputOptions,
) -> int:
    """Cut a model with the options of a command, and return the exit code."""
    from graph_tools.verbs.cut import cut

    options = storage.options(memory_limit, passes.skip_passes)
    return deliver_conversion(
        lambda progress: cut(
            paths.source,
            paths.target,
            **given(selection),
            **given(epoch),
            options=options,
            **given(proof),
            progress=progress,
        ),
        output,
        lambda data: render_cut(data, console()),
    )
