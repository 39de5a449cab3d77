# SPDX-License-Identifier: Apache-2.0
"""The second act: the same stream with group lasso, and what is left of the model after the cut."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import elastic_training as et
import processor
from demo.movielens import Rows
from demo.online import model as model_module
from demo.online.learning import tensors
from demo.online.model import ADAGRAD, Ranker
from demo.online.stream import batches
from demo.train import auc
from graph_tools import optimize

#: Strength of the lasso: above what the initial rows withstand, so rows stay zero until their keys have taught enough.
L21 = 0.005
_BATCH = 200
_ROUNDS, _ROWS = 30, 1000


@dataclasses.dataclass(frozen=True)
class Variant:
    """Describe a model that has seen the whole stream once.

    Attributes
    ----------
    name : str
    auc : float
        AUC over the second half of the stream: each rating is scored before the model learns it.
    rows, zero_rows : int
    exported_mb, served_mb : float
        Size of the export, and of what `graph-tools optimize` makes of it [MB].
    ms : float
        Median time for a request of 1,000 ratings in libprocessor [ms].
    """

    name: str
    auc: float
    rows: int
    zero_rows: int
    exported_mb: float
    served_mb: float
    ms: float


def compare(rows: Rows, folder: Path) -> list[Variant]:
    """Return the model without and with lasso, both trained on the same stream."""
    optimizers = {"Adagrad": et.Adagrad(**ADAGRAD), "GroupAdagrad": et.GroupAdagrad(**ADAGRAD, l21=L21)}
    trained = {}
    for name, optimizer in optimizers.items():
        model, scores = _train(rows, optimizer)
        half = len(rows) // 2
        model_module.export(model, folder / name)
        optimize(folder / name, folder / f"{name}-served", precision="fp32", accept_weak_proof=True)
        trained[name] = auc(rows.clicks[half:], scores[half:]), model.counts()
    times = _times({name: folder / f"{name}-served" for name in trained}, rows)
    return [
        Variant(name, found, *counts, _mb(folder / name), _mb(folder / f"{name}-served"), times[name])
        for name, (found, counts) in trained.items()
    ]


def _train(rows: Rows, optimizer: object) -> tuple[Ranker, np.ndarray]:
    model = Ranker(optimizer)
    model.logits(tensors(rows.take(np.arange(1))), training=False)
    step = model_module.make_step(model)
    scores = [step(tensors(batch.rows), tf.constant(batch.rows.clicks)).numpy() for batch in batches(rows, _BATCH)]
    return model, np.concatenate(scores)


def _times(folders: dict[str, Path], rows: Rows) -> dict[str, float]:
    """Return the median time of a request by name [ms]; the models take turns."""
    request = rows.take(np.arange(len(rows))[-_ROWS:]).features
    request = {name: column.astype(object) for name, column in request.items()}
    seconds: dict[str, list[float]] = {name: [] for name in folders}
    models = {name: processor.Model(folder) for name, folder in folders.items()}
    try:
        for _ in range(_ROUNDS):
            for name, model in models.items():
                begin = time.perf_counter()
                model.run(request)
                seconds[name].append(time.perf_counter() - begin)
    finally:
        for model in models.values():
            model.close()
    return {name: 1e3 * float(np.median(found)) for name, found in seconds.items()}


def _mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
