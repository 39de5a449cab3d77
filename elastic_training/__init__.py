# SPDX-License-Identifier: Apache-2.0
"""Embeddings without a vocabulary, trained in TensorFlow."""

from elastic_training.admission import AlwaysAdmit, CountFilter, CountingFilter, PoissonFilter
from elastic_training.config import TableConfig
from elastic_training.eviction import Bytes, CountDecay, Interval, L2Norm, Rows, Score, Ttl
from elastic_training.initializers import Constant, Normal, TruncatedNormal, Uniform, Zeros
from elastic_training.optimizers import (
    SGD,
    Adagrad,
    Adam,
    Ftrl,
    GroupAdagrad,
    GroupAdam,
    GroupFtrl,
    GroupRowwiseAdagrad,
    GroupSGD,
    RowwiseAdagrad,
)
from elastic_training.table import RowContents, Table

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AlwaysAdmit",
    "Bytes",
    "Constant",
    "CountDecay",
    "CountFilter",
    "CountingFilter",
    "Ftrl",
    "GroupAdagrad",
    "GroupAdam",
    "GroupFtrl",
    "GroupRowwiseAdagrad",
    "GroupSGD",
    "Interval",
    "L2Norm",
    "Normal",
    "PoissonFilter",
    "RowContents",
    "Rows",
    "RowwiseAdagrad",
    "Score",
    "Table",
    "TableConfig",
    "TruncatedNormal",
    "Ttl",
    "Uniform",
    "Zeros",
]
