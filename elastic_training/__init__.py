# SPDX-License-Identifier: Apache-2.0
"""Embeddings without a vocabulary, trained in TensorFlow."""

from __future__ import annotations

import importlib
from typing import Any

from elastic_training.admission import AlwaysAdmit, CountFilter, CountingFilter, PoissonFilter
from elastic_training.checkpoints.checkpoints import Checkpoints
from elastic_training.checkpoints.offsets import StreamOffsets
from elastic_training.config import TableConfig
from elastic_training.eviction import Bytes, CountDecay, Interval, L2Norm, Rows, Score, Ttl
from elastic_training.export import Publisher, export
from elastic_training.initializers import Constant, Normal, TruncatedNormal, Uniform, Zeros
from elastic_training.layers.callers import loss_scale
from elastic_training.layers.compressed_embeddings import BinaryCodeEmbedding, MultiHashEmbedding
from elastic_training.layers.compressed_modules import BinaryCodeEmbeddingModule, MultiHashEmbeddingModule
from elastic_training.layers.feature import Feature
from elastic_training.layers.feature_embeddings import FeatureEmbeddings
from elastic_training.layers.frequency_embedding import FrequencyEmbedding
from elastic_training.layers.hash_embedding import HashEmbedding
from elastic_training.layers.modules import FeatureEmbeddingsModule, HashEmbeddingModule
from elastic_training.layers.row_codes import BinaryCode, Hashes, QuotientRemainder
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
from elastic_training.reports.explain import Explanation, explain
from elastic_training.reports.forecast import Forecast, SettingForecast, forecast
from elastic_training.reports.report import Report, TableReport, report
from elastic_training.reports.tensorboard import ElasticSummaries, write_summaries
from elastic_training.table import RowContents, Table
from elastic_training.tiers import Tiers
from elastic_training.warm_start import LoadedTable, load_tables

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AlwaysAdmit",
    "BinaryCode",
    "BinaryCodeEmbedding",
    "BinaryCodeEmbeddingModule",
    "Bytes",
    "Checkpoints",
    "Constant",
    "CountDecay",
    "CountFilter",
    "CountingFilter",
    "ElasticSummaries",
    "Explanation",
    "Feature",
    "FeatureEmbeddings",
    "FeatureEmbeddingsModule",
    "Forecast",
    "FrequencyEmbedding",
    "Ftrl",
    "GroupAdagrad",
    "GroupAdam",
    "GroupFtrl",
    "GroupRowwiseAdagrad",
    "GroupSGD",
    "HashEmbedding",
    "HashEmbeddingModule",
    "Hashes",
    "Interval",
    "L2Norm",
    "LoadedTable",
    "MultiHashEmbedding",
    "MultiHashEmbeddingModule",
    "Normal",
    "PoissonFilter",
    "Publisher",
    "QuotientRemainder",
    "Report",
    "RowContents",
    "Rows",
    "RowwiseAdagrad",
    "Score",
    "SettingForecast",
    "StreamOffsets",
    "Table",
    "TableConfig",
    "TableReport",
    "Tiers",
    "TruncatedNormal",
    "Ttl",
    "Uniform",
    "Zeros",
    "explain",
    "export",
    "forecast",
    "load_tables",
    "loss_scale",
    "report",
    "write_summaries",
]


def __getattr__(name: str) -> Any:
    """Import the layers for tf-keras when they are first asked for, and tf-keras with them."""
    if name == "tf_keras":
        return importlib.import_module("elastic_training.tf_keras")
    raise AttributeError(f"module 'elastic_training' has no attribute {name!r}")
