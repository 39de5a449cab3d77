# SPDX-License-Identifier: Apache-2.0
"""Send the same requests to every host: first to compare scores, then to measure time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from demo.measure import TOLERANCE, ServingError, Timed, Timing, WayIn, usable_cpus
from demo.report import Line
from demo.terminal import Terminal
from demo.workload import Workload


@dataclasses.dataclass(frozen=True)
class Question:
    """Contain a workload and TensorFlow's scores for it [rows] float32."""

    work: Workload
    expected: NDArray[np.float32]


def contest(
    terminal: Terminal, stock: Timed, ways: Sequence[WayIn], questions: Sequence[Question], rounds: int, seconds: float
) -> list[Line]:
    """Compare the scores of each host with TensorFlow's, then measure all of them in turn, round by round.

    Parameters
    ----------
    terminal : Terminal
        Shows the steps.
    stock : Timed
        TensorFlow itself.
    ways : sequence of WayIn
        The hosts to compare with it.
    questions : sequence of Question
        The workloads, the same for all.
    rounds : int
        Number of measurements of each host.
    seconds : float
        Duration of one measurement [s].

    Returns
    -------
    list of Line
        For each question in turn, the line of TensorFlow and those of the hosts.
    """
    found: dict[tuple[str, str], NDArray[np.float32]] = {}
    for way in ways:
        with terminal.step(f"Compare the scores, {way.short}") as advance:
            for place, question in enumerate(questions):
                found[way.key, question.work.name] = way.scores(question.work)
                advance(place + 1, len(questions))
    everyone: list[Timed] = [stock, *ways]
    timings: dict[tuple[str, str], list[Timing]] = {}
    with terminal.step("Measure in turn") as advance:
        done, total = 0, rounds * len(questions) * len(everyone)
        for _ in range(rounds):
            for question in questions:
                for timed in everyone:
                    timing = timed.measure(question.work, usable_cpus(), seconds)
                    timings.setdefault((timed.key, question.work.name), []).append(timing)
                    done += 1
                    advance(done, total)
    tolerances = {way.key: way.tolerance for way in ways}
    lines = []
    for question in questions:
        for timed in everyone:
            key = timed.key, question.work.name
            lines.append(_line(timed, question, found.get(key), timings[key], tolerances.get(timed.key, TOLERANCE)))
    return lines


def difference(scores: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Return the largest difference, or NaN if a score is NaN.

    Raises
    ------
    ServingError
        If the number of scores differs from the expected number.
    """
    if scores.shape != expected.shape:
        raise ServingError(f"scores: found shape {scores.shape}, expected {expected.shape}")
    return float(np.abs(scores.astype(np.float64) - expected.astype(np.float64)).max())


def _line(
    timed: Timed, question: Question, scores: NDArray[np.float32] | None, rounds: Sequence[Timing], tolerance: float
) -> Line:
    from demo.train import auc

    work = question.work
    ranked = question.expected if scores is None else scores
    return Line(
        way=timed.name,
        key=timed.key,
        rows=work.rows_per_request,
        auc=auc(work.rows.clicks[work.held_out], ranked[work.held_out]),
        difference=None if scores is None else difference(scores, question.expected),
        compared=0 if scores is None else len(scores),
        rounds=rounds,
        megabytes=timed.megabytes,
        tolerance=tolerance,
    )
