# SPDX-License-Identifier: Apache-2.0
"""Measure lookups in a table of binary codes beside lookups in a table with a row for each key.

    python -m load_tests.elastic.code_lookups            # a million keys: about two minutes
    python -m load_tests.elastic.code_lookups --quick    # the same code with 20,000 keys

Models that add up the columns of the rows of 4,096 ids are exported, optimized and served, with rows of 16 columns:

* keys: a row for each of a million keys, which are found by a hash index, as for ids that come as they are;
* numbers: a row for each of a million row numbers, for which somebody else has made the numbers;
* codes: a twentieth of the rows, three of which are added for each key.

Ids are drawn at random from all keys. The models take turns, in rounds of a second of CPU time; answers of each are
compared with those of the model in TensorFlow. Lookups of codes take at most 1.5 times the time of those of keys.
Writes results/elastic_code_lookups.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, finish, make_console, results_file
from load_tests.elastic.rounds import alternate, cpu_rate, ratio
from load_tests.elastic.setup import DIM, keys_of, values_of

__all__ = ["FORMS", "judge", "main", "measure"]

FORMS = ("keys", "numbers", "codes")
KEYS, QUICK_KEYS, IDS = 1_000_000, 20_000, 4096
BLOCKS, MOST = 3, 1.5
_BATCHES = 64


def _export(form: str, keys: int, folder: Path) -> Callable[[NDArray[np.int64]], NDArray[np.float32]]:
    """Export a model, and return what computes its answers in TensorFlow."""
    import tensorflow as tf

    import elastic_training as et

    module = tf.Module()
    if form == "numbers":
        module.rows = tf.Variable(values_of(np.arange(keys)))

        def rows(ids: Any) -> dict[str, Any]:
            return {"sums": tf.reduce_sum(tf.gather(module.rows, ids), -1)}

        serve = tf.function(rows, input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
        tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})
        return lambda ids: np.asarray(serve(tf.constant(ids))["sums"])
    layer: Any = et.HashEmbedding(DIM, name="rows")
    if form == "codes":
        block = int(np.log2(keys / 20 / BLOCKS))
        layer = et.BinaryCodeEmbedding(DIM, bits=block * BLOCKS, blocks=BLOCKS, name="rows")
    layer(tf.constant([0], tf.int64), training=False)
    count = layer.code.rows if form == "codes" else keys
    numbers = np.arange(count)
    table = layer.tables["rows"]
    table.insert(numbers + 1 if form == "codes" else keys_of(numbers), values_of(numbers))
    module.layer = layer

    def sums(features: dict[str, Any]) -> dict[str, Any]:
        return {"sums": tf.reduce_sum(layer(features["ids"], training=False), -1)}

    et.export(module, folder, inputs={"ids": tf.TensorSpec([None], tf.int64)}, function=sums)
    return lambda ids: np.asarray(sums({"ids": tf.constant(ids)})["sums"])


def measure(
    keys: int = KEYS, rounds: int = 7, seconds: float = 1.0, tick: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Return ids per CPU-second of each form, their rows, and the number of wrong answers."""
    import graph_tools
    import processor

    random = np.random.default_rng(0)
    numbers = [random.integers(0, keys, IDS) for _ in range(_BATCHES)]
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        served, requests = {}, {}
        for form in FORMS:
            tick(form)
            folder = Path(name) / form
            answers = _export(form, keys, folder)
            graph_tools.optimize(folder, Path(name) / f"{form} optimized", precision="fp32", accept_weak_proof=True)
            served[form] = processor.Model(Path(name) / f"{form} optimized", {"warmup_runs": 1})
            batches = [ids if form == "numbers" else keys_of(ids) for ids in numbers]
            requests[form] = [{"ids": ids} for ids in batches]
            found = served[form].run(requests[form][0])["sums"]
            wrong += int((~np.isclose(found, answers(batches[0]), rtol=1e-5, atol=1e-6)).sum())
        tick("rounds")

        def rate(form: str) -> Callable[[], float]:
            model, given = served[form], requests[form]
            return lambda: cpu_rate(lambda count: model.run(given[count % _BATCHES]), IDS, seconds)

        figures = alternate({form: rate(form) for form in FORMS}, rounds)
        for model in served.values():
            model.close()
    times = {f"codes / {form}": ratio(figures, form, "codes") for form in FORMS[:2]}
    return {"keys": keys, "ids per CPU-second": figures, "times": times, "wrong": wrong}


def judge(figures: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    return [
        Target("time of codes over keys", figures["times"]["codes / keys"], MOST, at_least=False),
        Target("wrong answers", float(figures["wrong"]), 0.0, at_least=False),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; return 1 if an answer is wrong, or with --strict if a target was missed."""
    parser = argparse.ArgumentParser(description="Measure lookups in a table of binary codes.")
    parser.add_argument("--quick", action="store_true", help="few keys and short rounds; no targets")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    size = (QUICK_KEYS, 2, 0.05) if options.quick else (KEYS, 7, 1.0)
    with console.status("lookups") as status:
        figures = measure(*size, status.update)
    table = Table("form", "million ids per CPU-second")
    for form in FORMS:
        median, least, greatest = (
            figures["ids per CPU-second"][form][key] / 1e6 for key in ("median", "least", "greatest")
        )
        table.add_row(form, f"{median:.2f} ({least:.2f} to {greatest:.2f})")
    console.print(table)
    console.print(figures["times"])
    targets = [] if options.quick else judge(figures)
    results = {"benchmark": "elastic_code_lookups", "quick": options.quick, "environment": environment, **figures}
    status_code = finish(console, results_file("elastic_code_lookups", options.quick), results, targets, options.strict)
    return 1 if figures["wrong"] else status_code


if __name__ == "__main__":
    sys.exit(main())
