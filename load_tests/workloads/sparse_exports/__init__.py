# SPDX-License-Identifier: Apache-2.0
"""Write SavedModels like training systems with custom ops: graphs by hand, checkpoints by TensorFlow's SaveV2.

The ops are described in `stripped_op_list` and not registered, as for a user who has only the export. Models have the
inputs `user` and `item`, and the outputs `rows` (the looked-up rows, concatenated) and `score`.
"""

from load_tests.workloads.sparse_exports.deeprec import deeprec_lookup, deeprec_table
from load_tests.workloads.sparse_exports.expected import rows_for, score_for
from load_tests.workloads.sparse_exports.export import Array, Export, dense_weights, partitioned
from load_tests.workloads.sparse_exports.ops import OPS, define_op
from load_tests.workloads.sparse_exports.tfplus import tfplus_lookup, tfplus_table
from load_tests.workloads.sparse_exports.tfra import tfra_lookup, tfra_table

__all__ = [
    "OPS",
    "Array",
    "Export",
    "deeprec_lookup",
    "deeprec_table",
    "define_op",
    "dense_weights",
    "partitioned",
    "rows_for",
    "score_for",
    "tfplus_lookup",
    "tfplus_table",
    "tfra_lookup",
    "tfra_table",
]
