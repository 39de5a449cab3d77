# SPDX-License-Identifier: Apache-2.0
"""Measure what a twentieth of the rows of a table of users costs, if users share rows by binary codes.

    python -m load_tests.elastic.binary_codes            # a million users, five seeds: about twenty minutes
    python -m load_tests.elastic.binary_codes --quick    # the same code with 20,000 users and one seed

Clicks of a million users are planted (planted_clicks.py), whose activity has a heavy tail: a few percent of the users
are behind most clicks, as in logs. For each seed the same model learns the same samples in one pass, in these forms:

* none: without user ids;
* full: with a row for each user;
* code: with the rows of binary codes, as published;
* frequent: users that were met often have rows of their own, and all share the rows of binary codes;
* only frequent: the same without codes.

It then scores later samples of the same users. Each form has the learning rates that were best for it among those
tried (0.02 to 0.5 at seed 0).

With 95 % confidence over the seeds, by paired differences: removing the ids costs at least 3 % of the AUC, so that the
rows matter; code and frequent have at most a twentieth of the rows, and lose at most 0.3 % of the AUC of full. Writes
results/elastic_binary_codes.json.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from load_tests._report import Target
from load_tests.elastic.planted_clicks import Clicks, PlantedClicks, auc
from load_tests.elastic.planted_study import USERS, run_study, upper_bound

__all__ = ["FORMS", "Setting", "build", "judge", "learn", "main", "measure", "setting_for", "show"]

FORMS = ("none", "full", "code", "frequent", "only frequent")
COMPRESSED = ("code", "frequent")
COST, FEWER, LOST = 3.0, 20.0, 0.3


@dataclass(frozen=True)
class Setting:
    """The users, the model and how it learns.

    Parameters
    ----------
    share, spread : float
        Share of users with tastes, and spread of activities, as of PlantedClicks.
    dim : int
        Length of the rows of users and items.
    batch : int
    code_bits, code_blocks : int
        The code of the form `code`.
    shared_bits, shared_blocks : int
        That of `frequent`, which has rows of its own besides.
    occurrences : int
        From how many samples on a user has a row in the forms with frequent users.
    full_rate, code_rate, own_rate, shared_rate : float
        Learning rates of Adagrad: of all users, codes, frequent users, and the codes beside them.
    """

    share: float = 0.005
    spread: float = 2.0
    dim: int = 8
    batch: int = 4096
    code_bits: int = 39
    code_blocks: int = 3
    shared_bits: int = 22
    shared_blocks: int = 2
    occurrences: int = 42
    full_rate: float = 0.2
    code_rate: float = 0.1
    own_rate: float = 0.4
    shared_rate: float = 0.05


def setting_for(users: int) -> Setting:
    """Return the setting for a number of users: tables shrink with it, and so do batches."""
    halvings = max(0, round(np.log2(USERS / users)))
    plain = Setting()
    code = plain.code_bits // plain.code_blocks - halvings
    shared = plain.shared_bits // plain.shared_blocks - halvings
    return Setting(
        batch=max(256, plain.batch >> halvings),
        code_bits=plain.code_blocks * max(2, code),
        shared_bits=plain.shared_blocks * max(2, shared),
    )


def build(setting: Setting, form: str) -> Any:
    """Build a model whose logit is the product of user and item, a tower over both, and the item's appeal.

    Parameters
    ----------
    setting : Setting
    form : str
        One of FORMS; "none" has no users.
    """
    import keras

    import elastic_training as et

    keras.utils.set_random_seed(0)

    def adagrad(rate: float) -> Any:
        # The gradients of rows are about 1 / batch; an initial accumulator of 0.1 would make all first steps tiny.
        return et.Adagrad(rate, initial_accumulator=1e-7)

    plain = adagrad(0.4)
    user, item = keras.Input((), dtype="int64", name="user"), keras.Input((), dtype="int64", name="item")
    items = et.HashEmbedding(setting.dim, plain, embeddings_initializer=et.Uniform(-0.25, 0.25), name="items")(item)
    logit = et.HashEmbedding(1, plain, embeddings_initializer="zeros", name="appeal")(item)
    parts = []
    if form in ("full", "frequent", "only frequent"):
        whole = form == "full"
        layer = et.HashEmbedding(
            setting.dim,
            adagrad(setting.full_rate if whole else setting.own_rate),
            admit=et.AlwaysAdmit() if whole else et.CountFilter(setting.occurrences),
            embeddings_initializer="zeros",
            name="users",
        )
        parts.append(layer(user))
    if form in COMPRESSED:
        whole = form == "code"
        coded = et.BinaryCodeEmbedding(
            setting.dim,
            bits=setting.code_bits if whole else setting.shared_bits,
            blocks=setting.code_blocks if whole else setting.shared_blocks,
            optimizer=adagrad(setting.code_rate if whole else setting.shared_rate),
            embeddings_initializer="zeros",
            name="codes",
        )
        parts.append(coded(user))
    tower = items
    if parts:
        users = parts[0] if len(parts) == 1 else keras.layers.Add()(parts)
        logit += keras.ops.sum(users * items, axis=-1, keepdims=True)
        tower = keras.layers.Concatenate()([users, items])
    logit += keras.layers.Dense(1)(keras.layers.Dense(16, "relu")(tower))
    model = keras.Model({"user": user, "item": item}, logit)
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def learn(setting: Setting, form: str, train: Clicks, test: Clicks) -> dict[str, float]:
    """Train a form in one pass over `train`, and score `test`.

    Returns
    -------
    figures : dict
        `auc`; `rows` of users, without candidates; `samples_per_s` of training.
    """
    import tensorflow as tf

    model = build(setting, form)
    samples = tf.data.Dataset.from_tensor_slices(({"user": train.users, "item": train.items}, train.clicked))
    start = time.perf_counter()
    model.fit(samples.batch(setting.batch).prefetch(2), verbose=0, shuffle=False)
    speed = len(train) / (time.perf_counter() - start)
    scores = model.predict({"user": test.users, "item": test.items}, batch_size=65536, verbose=0)[:, 0]
    layers = [layer for layer in model.layers if layer.name in ("users", "codes")]
    rows = sum(table.size() for layer in layers for table in layer.tables.values())
    return {"auc": auc(scores, test.clicked), "rows": rows, "samples_per_s": speed}


def measure(setting: Setting, users: int, seeds: int, tick: Callable[[str], None] = lambda text: None) -> Any:
    """Return the figures of all forms by seed."""
    turns = []
    for seed in range(seeds):
        tick(f"seed {seed}: samples")
        world = PlantedClicks(users, seed=seed, share=setting.share, spread=setting.spread)
        train, test = world.draw(), world.draw(0.1)
        turn: dict[str, Any] = {"samples": len(train), "best_auc": auc(test.chance, test.clicked)}
        for form in FORMS:
            tick(f"seed {seed}: {form}")
            turn[form] = learn(setting, form, train, test)
        turns.append(turn)
    return {"setting": asdict(setting), "users": users, "turns": turns}


def judge(figures: Any) -> list[Target]:
    """Return the targets."""
    turns = figures["turns"]
    cost = [-100 * (1 - turn["none"]["auc"] / turn["full"]["auc"]) for turn in turns]
    targets = [Target("AUC that removing the ids costs [%]", -upper_bound(cost), COST, at_least=True)]
    for form in COMPRESSED:
        fewer = [-turn["full"]["rows"] / turn[form]["rows"] for turn in turns]
        lost = [100 * (1 - turn[form]["auc"] / turn["full"]["auc"]) for turn in turns]
        targets += [
            Target(f"{form}: how many times fewer rows", -upper_bound(fewer), FEWER, at_least=True),
            Target(f"{form}: AUC lost [%]", upper_bound(lost), LOST, at_least=False),
        ]
    return targets


def show(figures: Any) -> Table:
    """Return a table with a line for each seed."""
    table = Table("seed", "samples", "AUC of the truth", *(f"AUC, {form}" for form in FORMS), "rows")
    for seed, turn in enumerate(figures["turns"]):
        aucs = (f"{turn[form]['auc']:.4f}" for form in FORMS)
        rows = ", ".join(f"{turn[form]['rows']:,}" for form in FORMS[1:])
        table.add_row(str(seed), f"{turn['samples']:,}", f"{turn['best_auc']:.4f}", *aucs, rows)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; return 1 if with --strict a target was missed."""
    description = "Measure what a twentieth of the rows costs with binary codes."

    def measure_users(users: int, seeds: int, tick: Callable[[str], None]) -> Any:
        return measure(setting_for(users), users, seeds, tick)

    return run_study(arguments, description, "binary_codes", measure_users, judge, show)


if __name__ == "__main__":
    sys.exit(main())
