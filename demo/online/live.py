# SPDX-License-Identifier: Apache-2.0
"""The first act: learn the stream while the model is served, and measure what clients see of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import grpc
import numpy as np
import requests
from numpy.typing import NDArray

import elastic_training as et
from demo.movielens import Features, Rows
from demo.online import asking, learning, model
from demo.online.asking import Sent
from demo.online.learning import Learned
from demo.online.options import Options
from demo.online.report import Curve, Figures, faults
from demo.online.stream import auc_by_window
from demo.proxy.server import Proxy, serve_words, serving
from demo.proxy.story import command
from demo.terminal import Terminal
from demo.train import auc
from graph_tools import optimize

MODEL = "ranker"
#: Ratings that are learned at a time, and share of the stream that is learned before the model is first served.
BATCH, BEFORE = 100, 0.05
#: Ratings for each point of the picture, as a share of the stream.
_WINDOW = 0.05
_REQUESTS, _RECORDED, _FILMS, _COMPARED = 200, 50, 20, 1000
_LAST_EPOCH_S = 10.0


def run(
    options: Options, terminal: Terminal, folder: Path, rows: Rows
) -> tuple[Figures, tuple[Curve, Curve, NDArray[np.float64]], list[str]]:
    """Learn and serve the stream; return the figures, what the picture shows, and the faults.

    Raises
    ------
    ServingError
        If the proxy could not be started or refused a command.
    """
    start = round(BEFORE * len(rows))
    with terminal.step(f"Learn the first {start:,} ratings"):
        ranker = model.Ranker()
        step = learning.learn_before(ranker, rows.take(np.arange(start)), BATCH)
        model.export(ranker, folder / "export")
        asking.record(folder / "export", _requests(rows.take(np.arange(start)))[:_RECORDED])
    timeline = folder / "timeline"
    timeline.mkdir()
    compared = rows.take(np.arange(len(rows))[-_COMPARED:])
    with contextlib.ExitStack() as stack:
        proxy = _serve(options, terminal, stack, folder, timeline)
        channel = stack.enter_context(grpc.insecure_channel(proxy.grpc))
        session = stack.enter_context(requests.Session())
        # Proxy variables of the environment concern other networks.
        session.trust_env = False
        ask = asking.grpc_client(channel, MODEL)
        clients = {"gRPC": ask, "HTTP": asking.http_client(session, proxy.rest, MODEL)}
        publisher = et.Publisher(timeline, every="1s", export=folder / "export", model=ranker)
        with asking.Askers(clients, _requests(rows)) as askers:
            with terminal.step(f"Score and learn {len(rows) - start:,} ratings") as advance:
                stream = learning.Stream(rows, start, BATCH, options.seconds)
                learned = learning.learn(ranker, step, stream, ask, publisher, folder / "frozen", advance)
            askers.wait_for(learned.epoch, _LAST_EPOCH_S)
            last = ask(compared.features)
        sent = askers.sent()
        publisher.close()
        with terminal.step("Stop the proxy and its host"):
            stack.close()
    model.export(ranker, folder / "last")
    difference = np.abs(last.scores - learning.stock_scores(folder / "last", compared)).max()
    after = learning.served_after(learned.came, timeline, sent)
    frozen = learning.stock_scores(folder / "frozen", rows.take(np.arange(start + learned.frozen_at, len(rows))))
    figures = _figures(ranker, learned, frozen, after, sent, float(difference))
    curves = _curves(learned, frozen, round(_WINDOW * len(rows)))
    return figures, (*curves, after), faults(figures, last.epoch >= learned.epoch)


def _serve(options: Options, terminal: Terminal, stack: contextlib.ExitStack, folder: Path, timeline: Path) -> Proxy:
    """Start a proxy that serves the export and follows the timeline."""
    state = folder / "proxy"
    terminal.console.print()
    command(terminal, *serve_words(_shown(state, options.root)))
    with terminal.step("Start the proxy and a host"):
        proxy = stack.enter_context(serving(options.root, state, options.work / "proxy.log"))
    served = folder / "export"
    if not options.optimize:
        served = folder / "artifact"
        with terminal.step("Optimize the export"):
            optimize(folder / "export", served, live=True)
    words = ["deploy", MODEL, str(_shown(served, options.root)), *(["--optimize"] if options.optimize else [])]
    words += ["--follow", str(_shown(timeline, options.root)), "--wait"]
    command(terminal, *words)
    with terminal.step("Optimize and deploy the export" if options.optimize else "Deploy the artifact"):
        proxy.verb(*words)
        proxy.settle()
    return proxy


def _requests(rows: Rows) -> list[Features]:
    """Return requests for rows that are anywhere in the stream."""
    random = np.random.default_rng(5)
    return [rows.take(random.integers(0, len(rows), _FILMS)).features for _ in range(_REQUESTS)]


def _figures(
    ranker: model.Ranker,
    learned: Learned,
    frozen: NDArray[np.float32],
    after: NDArray[np.float64],
    sent: Sequence[Sent],
    difference: float,
) -> Figures:
    at = learned.frozen_at
    served = np.percentile(after, [50, 99], method="higher")
    waited = np.percentile([1e3 * request.seconds for request in sent if not request.lost], [50, 99])
    rows, zero_rows = ranker.counts()
    return Figures(
        ratings=len(learned.clicks),
        frozen_at=at,
        live_auc=auc(learned.clicks[at:], learned.scores[at:]),
        frozen_auc=auc(learned.clicks[at:], frozen),
        served_p50_s=float(served[0]),
        served_p99_s=float(served[1]),
        requests=len(sent),
        lost=sum(request.lost for request in sent),
        p50_ms=float(waited[0]),
        p99_ms=float(waited[1]),
        epochs=learned.epoch,
        published_rows=learned.publisher["rows"],
        push_ms_longest=learned.publisher["push_ms_longest"],
        push_cpu_ms_longest=learned.publisher["push_cpu_ms_longest"],
        rows=rows,
        zero_rows=zero_rows,
        largest_difference=difference,
    )


def _curves(learned: Learned, frozen: NDArray[np.float32], window: int) -> tuple[Curve, Curve]:
    ends, frozen_aucs = auc_by_window(learned.clicks[learned.frozen_at :], frozen, window)
    return auc_by_window(learned.clicks, learned.scores, window), (ends + learned.frozen_at, frozen_aucs)


def _shown(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
