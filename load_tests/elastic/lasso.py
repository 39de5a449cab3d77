# SPDX-License-Identifier: Apache-2.0
"""Measure what group lasso removes from a table of users, and what that costs.

    python -m load_tests.elastic.lasso            # a million users, five seeds: about fifteen minutes
    python -m load_tests.elastic.lasso --quick    # the same code with 20,000 users and one seed

Clicks of a million users are planted, 7 % of whom have tastes (planted_clicks.py). For each seed the same model learns
the same samples in one pass, in three forms: without user ids, with a row for each user, and with group lasso. It then
scores later samples of the same users. Each form has the learning rate that was best for it among those tried (0.2 to
0.8 at seed 0).

With 95 % confidence over the seeds, by paired differences: removing the ids costs at least 3 % of the AUC, so that the
rows matter; at least 90 % of the rows are zero; lasso loses at most 0.1 % of the AUC; and `graph-tools cut` of the
exported model removes at least 90 % of the table's bytes. Writes results/elastic_lasso.json.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from load_tests._report import Target
from load_tests.elastic.planted_clicks import Clicks, PlantedClicks, auc
from load_tests.elastic.planted_study import run_study, upper_bound

__all__ = ["FORMS", "Setting", "build", "judge", "learn", "main", "measure"]

FORMS = ("none", "plain", "lasso")
COST, ZERO, LOST, CUT = 3.0, 90.0, 0.1, 90.0


@dataclass(frozen=True)
class Setting:
    """The model and how it learns.

    Parameters
    ----------
    dim : int
        Length of the rows of users and items.
    batch : int
        The loss is the mean over a batch, so the gradient of a row is proportional to 1 / batch, and l21 has to be.
    l21 : float
    plain_rate, lasso_rate : float
        Learning rates of Adagrad.
    """

    dim: int = 8
    batch: int = 4096
    l21: float = 7e-4
    plain_rate: float = 0.4
    lasso_rate: float = 0.6


def build(setting: Setting, form: str) -> Any:
    """Build a model whose logit is the product of user and item, a tower over both, and the item's appeal.

    Parameters
    ----------
    setting : Setting
    form : {"none", "plain", "lasso"}
        "none" has no users.
    """
    import keras

    import elastic_training as et

    keras.utils.set_random_seed(0)
    rate = setting.lasso_rate if form == "lasso" else setting.plain_rate
    # The gradients of rows are about 1 / batch; an initial accumulator of 0.1 would make all first steps tiny.
    plain = et.Adagrad(rate, initial_accumulator=1e-7)
    user, item = keras.Input((), dtype="int64", name="user"), keras.Input((), dtype="int64", name="item")
    items = et.HashEmbedding(setting.dim, plain, embeddings_initializer=et.Uniform(-0.25, 0.25), name="items")(item)
    logit = et.HashEmbedding(1, plain, embeddings_initializer="zeros", name="appeal")(item)
    tower = items
    if form != "none":
        lasso = et.GroupAdagrad(rate, initial_accumulator=1e-7, l21=setting.l21)
        learns = lasso if form == "lasso" else plain
        users = et.HashEmbedding(setting.dim, learns, embeddings_initializer="zeros", name="users")(user)
        logit += keras.ops.sum(users * items, axis=-1, keepdims=True)
        tower = keras.layers.Concatenate()([users, items])
    logit += keras.layers.Dense(1)(keras.layers.Dense(16, "relu")(tower))
    model = keras.Model({"user": user, "item": item}, logit)
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def learn(setting: Setting, form: str, train: Clicks, test: Clicks, planted: Any) -> dict[str, float]:
    """Train a form in one pass over `train`, and score `test`.

    Parameters
    ----------
    planted : ndarray [n] int64
        Keys of the users with tastes.

    Returns
    -------
    figures : dict
        `auc`; `rows` and `zero_rows` of users; `missed`: share of zero rows among the users with tastes;
        `samples_per_s` of training; with lasso those of `bytes_of`.
    """
    import tensorflow as tf

    model = build(setting, form)
    samples = tf.data.Dataset.from_tensor_slices(({"user": train.users, "item": train.items}, train.clicked))
    start = time.perf_counter()
    model.fit(samples.batch(setting.batch).prefetch(2), verbose=0, shuffle=False)
    speed = len(train) / (time.perf_counter() - start)
    scores = model.predict({"user": test.users, "item": test.items}, batch_size=65536, verbose=0)[:, 0]
    figures = {"auc": auc(scores, test.clicked), "samples_per_s": speed}
    if form == "none":
        return figures
    table = model.get_layer("users").table
    stats = table.stats()
    weights = table.read(planted[np.isin(planted, train.users)]).weights.numpy()
    missed = float((~weights.any(axis=1)).mean())
    figures |= {"rows": stats["rows"], "zero_rows": stats["zero_rows"], "missed": missed}
    if form == "lasso":
        with tempfile.TemporaryDirectory() as folder:
            figures |= bytes_of(model, Path(folder))
    return figures


def bytes_of(model: Any, folder: Path) -> dict[str, float]:
    """Export a model, cut it, and return the bytes of the users' table before and after.

    Returns
    -------
    figures : dict
        `exported_bytes`, `cut_bytes`; `kept_keys` of the table after the cut.
    """
    import elastic_training as et
    import graph_tools

    et.export(model, folder / "exported")
    report = graph_tools.cut(folder / "exported", folder / "cut")
    table = next(table for table in report.tables if "users" in table.name)
    return {"exported_bytes": table.source_bytes, "cut_bytes": table.bytes, "kept_keys": table.kept_keys}


def measure(setting: Setting, users: int, seeds: int, tick: Callable[[str], None] = lambda text: None) -> Any:
    """Return the figures of all forms by seed."""
    turns = []
    for seed in range(seeds):
        tick(f"seed {seed}: samples")
        world = PlantedClicks(users, seed=seed)
        train, test = world.draw(), world.draw(0.1)
        planted = world.keys(np.flatnonzero(world.planted))
        turn: dict[str, Any] = {"samples": len(train), "best_auc": auc(test.chance, test.clicked)}
        for form in FORMS:
            tick(f"seed {seed}: {form}")
            turn[form] = learn(setting, form, train, test, planted)
        turns.append(turn)
    return {"setting": asdict(setting), "users": users, "turns": turns}


def judge(figures: Any) -> list[Target]:
    """Return the targets."""
    turns = figures["turns"]
    cost = [-100 * (1 - turn["none"]["auc"] / turn["plain"]["auc"]) for turn in turns]
    zero = [-100 * turn["lasso"]["zero_rows"] / turn["lasso"]["rows"] for turn in turns]
    removed = [100 * (turn["lasso"]["cut_bytes"] / turn["lasso"]["exported_bytes"] - 1) for turn in turns]
    lost = [100 * (1 - turn["lasso"]["auc"] / turn["plain"]["auc"]) for turn in turns]
    return [
        Target("AUC that removing the ids costs [%]", -upper_bound(cost), COST, at_least=True),
        Target("zero rows [%]", -upper_bound(zero), ZERO, at_least=True),
        Target("AUC that lasso loses [%]", upper_bound(lost), LOST, at_least=False),
        Target("bytes of the table that graph-tools cut removes [%]", -upper_bound(removed), CUT, at_least=True),
    ]


def show(figures: Any) -> Table:
    """Return a table with a line for each seed."""
    columns = [f"AUC, {form}" for form in FORMS]
    table = Table("seed", "samples", "AUC of the truth", *columns, "zero rows", "tastes missed", "bytes cut")
    for seed, turn in enumerate(figures["turns"]):
        lasso = turn["lasso"]
        aucs = (f"{turn[form]['auc']:.4f}" for form in FORMS)
        cut = 1 - lasso["cut_bytes"] / lasso["exported_bytes"]
        shares = f"{lasso['zero_rows'] / lasso['rows']:.1%}", f"{lasso['missed']:.1%}", f"{cut:.1%}"
        table.add_row(str(seed), f"{turn['samples']:,}", f"{turn['best_auc']:.4f}", *aucs, *shares)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; return 1 if with --strict a target was missed."""
    description = "Measure what group lasso removes from a table, and what that costs."

    def measure_users(users: int, seeds: int, tick: Callable[[str], None]) -> Any:
        return measure(Setting(), users, seeds, tick)

    return run_study(arguments, description, "lasso", measure_users, judge, show)


if __name__ == "__main__":
    sys.exit(main())
