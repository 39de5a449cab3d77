# SPDX-License-Identifier: Apache-2.0
"""Measure how much faster stock TensorFlow runs one-row requests after a model is cut."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from load_tests.workloads._cache import CACHE, ensure_model

Request = Callable[[], Any]


def bag_request(random: np.random.Generator, rows: int = 1, words: int = 4) -> dict[str, np.ndarray[Any, Any]]:
    """Return a request for the workload `bags`: up to `words` words in every bag.

    Returns
    -------
    feeds : dict
        "words", ndarray [rows, 20, words] object.
    """
    chosen = np.array([b"word%d" % integer for integer in random.integers(0, 100_000, rows * 20 * words)], object)
    chosen[random.random(len(chosen)) < 0.3] = b""
    return {"words": chosen.reshape(rows, 20, words)}


def through_session(model: Path, feeds: dict[str, np.ndarray[Any, Any]]) -> tuple[Request, Any]:
    """Load a model as a server does, and return a function that runs a request, and the session that it needs.

    A request runs only on the caller's thread: one row is too small to divide, and the graphs are compared.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    graph = v1.Graph()
    with graph.as_default():
        config = v1.ConfigProto(inter_op_parallelism_threads=-1, intra_op_parallelism_threads=1)
        session = v1.Session(config=config)
        meta_graph = v1.saved_model.load(session, ["serve"], str(model))
        signature = meta_graph.signature_def["serving_default"]
        fed = [graph.get_tensor_by_name(signature.inputs[key].name) for key in sorted(feeds)]
        fetched = [graph.get_tensor_by_name(info.name) for _, info in sorted(signature.outputs.items())]
        answer = session.make_callable(fetched, feed_list=fed)
    values = [feeds[key] for key in sorted(feeds)]
    return (lambda: answer(*values)), session


def through_function(model: Path, feeds: dict[str, np.ndarray[Any, Any]]) -> tuple[Request, Any]:
    """Load a model as TF 2 does, and return a function that runs a request, and the model that it needs.

    Every call includes some 100 us of Python, whether the model is cut or not.
    """
    import tensorflow as tf

    loaded = tf.saved_model.load(str(model))
    function = loaded.signatures["serving_default"]
    tensors = {key: tf.constant(value) for key, value in feeds.items()}
    return (lambda: [function(**tensors)[key].numpy() for key in sorted(function.structured_outputs)]), loaded


LOADERS = {"session": through_session, "function": through_function}


def one_row_speed(
    before: Path,
    after: Path,
    feeds: dict[str, np.ndarray[Any, Any]],
    loader: str = "session",
    rounds: int = 15,
    each: int = 60,
) -> dict[str, Any]:
    """Time the same request on two models in alternating rounds.

    Parameters
    ----------
    before, after : Path
        SavedModels with the same outputs.
    feeds : dict of str to ndarray
    loader : str
        "session" or "function".
    rounds : int
        Rounds for each model.
    each : int
        Requests in a round.

    Returns
    -------
    results : dict
        "before_us", "after_us": median over rounds of the time of a request [us]; "ratio": before / after.

    Raises
    ------
    AssertionError
        If the outputs of the two models differ.
    """
    requests = [LOADERS[loader](path, feeds) for path in (before, after)]
    first, second = (request() for request, _ in requests)
    for before_output, after_output in zip(first, second, strict=True):
        np.testing.assert_allclose(after_output, before_output, rtol=1e-5, atol=1e-5)
    times: list[list[float]] = [[], []]
    for turn in range(rounds + 2):
        for of_model, (request, _) in zip(times, requests, strict=True):
            start = time.perf_counter()
            for _ in range(each):
                request()
            if turn >= 2:  # the first two warm up
                of_model.append((time.perf_counter() - start) / each * 1e6)
    medians = [statistics.median(of_model) for of_model in times]
    return {"loader": loader, "before_us": medians[0], "after_us": medians[1], "ratio": medians[0] / medians[1]}


def main() -> None:
    """Cut the workload `bags` and time it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--after", type=Path, help="the cut model; by default it is created")
    arguments = parser.parse_args()
    before, after = ensure_model("bags"), arguments.after
    if after is None:
        from graph_tools import cut

        after = CACHE / "bags-cut"
        if not after.exists():
            cut(before, after)
    feeds = bag_request(np.random.default_rng(0))
    for loader in LOADERS:
        found = one_row_speed(before, after, feeds, loader)
        print(
            f"{loader:9} {found['before_us']:6.0f} -> {found['after_us']:6.0f} us, {found['ratio']:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
