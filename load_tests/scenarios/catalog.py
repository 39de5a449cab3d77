# SPDX-License-Identifier: Apache-2.0
"""Define the scenarios: requests, events during the run, and expected results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from load_tests.hosts.churn import memory_spread
from load_tests.scenarios.arrivals import Phase
from load_tests.scenarios.generators import NATIVE_CLIENTS, Sent, flood
from load_tests.scenarios.judging import REFUSALS, Limit, growth, p99_ratio, recovery_s, spread_of
from load_tests.scenarios.stage import MODEL, VARIANT, Stage

__all__ = ["SCENARIOS", "SLO_MS", "Run", "Scenario"]

#: Longest wait of a client of a ranking model; on a machine shared with the generator, half of it is lost.
SLO_MS = 50.0
#: Overload: requests that may wait in the host, and how long a response is still useful to a client.
_QUEUE, _USEFUL_MS = 32, 250.0
_QUIET = ("quiet", "quiet again")
_ANSWERED = (
    Limit("failed", 0.0, "failed requests"),
    Limit("unanswered", 0.0, "requests without an answer"),
)
# Otherwise the generator itself was measured.
_ON_TIME = Limit("late_p99_ms", 20.0, "p99 of how late requests were sent, ms")


@dataclass
class Run:
    """Describe one run of a scenario.

    Attributes
    ----------
    rate : float [1/s]
        Rate of the ordinary load.
    seconds : float [s]
        Approximate duration of the scenario.
    pinned : bool
        Whether models of `noisy_variant` have CPUs of their own.
    noted : dict
        Observations during the run.
    """

    stage: Stage
    rate: float
    seconds: float
    pinned: bool = True
    noted: dict[str, Any] = field(default_factory=dict)


def _nothing(run: Run, phase: Phase, until: float) -> None:
    pass


def _deploy(run: Run) -> None:
    run.stage.deploy()


@dataclass(frozen=True)
class Scenario:
    """Define a scenario.

    Attributes
    ----------
    seconds : float [s]
        Its usual duration.
    rate : float [1/s]
        Its usual load.
    prepare, phases, during, figures : callable
        They deploy; return the phases; act during a phase; and return figures in addition to those of all scenarios.
    rows : int
        Rows of a request; more than one only with the native generator.
    """

    title: str
    seconds: float
    rate: float
    limits: Sequence[Limit]
    phases: Callable[[Run], list[Phase]]
    figures: Callable[[Run, list[dict[str, Any]], Sent], dict[str, float]]
    prepare: Callable[[Run], None] = _deploy
    during: Callable[[Run, Phase, float], None] = _nothing
    rows: int = 1


def _p99_ms(phases: Sequence[dict[str, Any]], name: str) -> float:
    return float(max(phase.get("p99_us", float("inf")) for phase in phases if phase["phase"] == name)) / 1000


# steady: one rate


def _steady(run: Run) -> list[Phase]:
    return [Phase("steady", run.seconds, run.rate)]


def _steady_figures(run: Run, phases: list[dict[str, Any]], sent: Sent) -> dict[str, float]:
    return {"p99_ms": _p99_ms(phases, "steady")}


# burst: three times the rate for some time, repeatedly


def _burst(run: Run) -> list[Phase]:
    once = run.seconds / 15
    calm = Phase("calm", 3 * once, run.rate)
    return [*[calm, Phase("burst", once, 3 * run.rate)] * 3, calm]


def _burst_figures(run: Run, phases: list[dict[str, Any]], sent: Sent) -> dict[str, float]:
    after = [span for span, phase in zip(sent.spans, phases, strict=True) if phase["phase"] == "calm"][1:]
    return {
        "p99_ms": _p99_ms(phases, "calm"),
        "burst_p99_ms": _p99_ms(phases, "burst"),
        "recovery_s": max(recovery_s(sent, (begin, min(end, begin + 5)), SLO_MS * 1000) for begin, end in after),
    }


# version_switch: a second version receives traffic, is promoted and rolled back


def _deploy_two_versions(run: Run) -> None:
    run.stage.deploy(1)
    run.stage.deploy(2)


def _switching(run: Run) -> list[Phase]:
    quiet = [Phase(name, run.seconds / 4, run.rate) for name in _QUIET]
    return [quiet[0], Phase("switching", run.seconds / 2, run.rate), quiet[1]]


def _switch(run: Run, phase: Phase, until: float) -> None:
    if phase.name != "switching":
        return
    client, proxy = run.stage.proxy.client, run.stage.proxy
    changes: list[Callable[[], object]] = [
        lambda: client.traffic(MODEL, {2: 30}),
        lambda: client.traffic(MODEL, {2: 70}),
        lambda: client.promote(MODEL, 2),
        lambda: client.rollback(MODEL),
    ]
    while time.time() < until - 0.5:
        for change in changes:
            begun = time.time()
            change()
            proxy.wait_until_applied(begun)
            run.noted["switches"] = run.noted.get("switches", 0) + 1
            time.sleep(0.1)


def _switch_figures(run: Run, phases: list[dict[str, Any]], sent: Sent) -> dict[str, float]:
    return {
        "switches": float(run.noted.get("switches", 0)),
        "p99_ms": _p99_ms(phases, "switching"),
        "ratio": p99_ratio(phases, "switching", _QUIET),
        "spread": spread_of(phases, _QUIET),
    }


# overload: twice the host's capacity


def _limit_queue(run: Run) -> None:
    run.stage.deploy(limits={"max_queue": _QUEUE})
    endpoint = run.stage.endpoint
    report = flood(endpoint, endpoint.grpc_requests, NATIVE_CLIENTS, max(0.5, run.seconds / 8))
    run.noted["capacity"] = report["rate"]


def _overload(run: Run) -> list[Phase]:
    part = run.seconds / 4
    rate = min(run.rate, run.noted["capacity"] / 4)
    # The name decides which generator sends: this one is always native.
    over = max(2 * run.noted["capacity"], 501.0)
    return [Phase("before", part, rate), Phase("overload", part, over), Phase("after", 2 * part, rate)]


def _overload_figures(run: Run, phases: list[dict[str, Any]], sent: Sent) -> dict[str, float]:
    begin, end = sent.spans[2]
    over = sent.latencies.within(*sent.spans[1])
    in_time = float((over <= _USEFUL_MS * 1000).sum()) / phases[1]["seconds"]
    return {
        "capacity_requests_per_s": run.noted["capacity"],
        "refused": float(sum(count for kind, count in phases[1]["failed"].items() if kind in REFUSALS)),
        "goodput": in_time / run.noted["capacity"],
        "recovery_s": recovery_s(sent, (begin, end), SLO_MS * 1000),
        "p99_ms": _p99_ms(phases, "overload"),
        "host_alive": float(run.stage.alive()),
        "failed_outside": float(sum(sum(phases[number]["failed"].values()) for number in (0, 2))),
    }


# noisy_variant: a variant is overloaded next to the baseline


def _deploy_two_models(run: Run) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if run.pinned and len(cpus) > 1:
        run.stage.deploy(sessions=1, cpuset=str(cpus[0]))
        run.stage.deploy(name=VARIANT, sessions=1, cpuset=str(cpus[1]))
    else:
        run.stage.deploy()
        run.stage.deploy(name=VARIANT)


def _flood_variant(run: Run, phase: Phase, until: float) -> None:
    if phase.name == "noisy":
        seconds = max(0.2, until - time.time())
        report = flood(run.stage.endpoint, run.stage.variant_requests, 8, seconds)
        run.noted["variant_requests_per_s"] = report["rate"]


def _noisy(run: Run) -> list[Phase]:
    quiet = [Phase(name, run.seconds / 4, run.rate) for name in _QUIET]
    return [quiet[0], Phase("noisy", run.seconds / 2, run.rate), quiet[1]]


def _noisy_figures(run: Run, phases: list[dict[str, Any]], sent: Sent) -> dict[str, float]:
    return {
        "variant_requests_per_s": run.noted["variant_requests_per_s"],
        "p99_ms": _p99_ms(phases, "noisy"),
        "ratio": p99_ratio(phases, "noisy", _QUIET),
        "spread": spread_of(phases, _QUIET),
    }


# soak: long enough for leaks to show


def _soak(run: Run) -> list[Phase]:
    return [Phase(name, run.seconds / 3, run.rate) for name in ("first", "second", "third")]


def _watch(run: Run, phase: Phase, until: float) -> None:
    seen = run.noted.setdefault("resources", [])
    step = max(0.2, run.seconds / 120)
    while time.time() < until - step:
        seen.append(run.stage.resources())
        time.sleep(step)


def _soak_figures(run: Run, phases: list[dict[str, Any]], sent: Sent) -> dict[str, float]:
    seen = run.noted["resources"]
    return {
        "p99_ms": max(_p99_ms(phases, phase.name) for phase in _soak(run)),
        "drift": p99_ratio(phases, "third", ["first"]),
        "memory": memory_spread(seen),
        "threads": growth([moment["threads"] for moment in seen]),
        "files": growth([moment["files"] for moment in seen]),
    }


_P99 = Limit("p99_ms", SLO_MS, "p99, ms")
_RATIO = "p99 over that of the quiet phases"

SCENARIOS = {
    "steady": Scenario("One rate", 60.0, 150.0, [*_ANSWERED, _ON_TIME, _P99], _steady, _steady_figures),
    "burst": Scenario(
        "Three bursts of three times the rate",
        60.0,
        120.0,
        [
            *_ANSWERED,
            _ON_TIME,
            Limit("p99_ms", SLO_MS, "p99 between bursts, ms"),
            Limit("burst_p99_ms", 4 * SLO_MS, "p99 in bursts, ms"),
            Limit("recovery_s", 1.0, "p95 back within the SLO after a burst, s"),
        ],
        _burst,
        _burst_figures,
    ),
    "version_switch": Scenario(
        "Traffic to a second version, promote, roll-back",
        60.0,
        150.0,
        [
            *_ANSWERED,
            _ON_TIME,
            Limit("switches", 4.0, "switches made", at_least=True),
            Limit("ratio", 1.3, _RATIO, spread="spread"),
        ],
        _switching,
        _switch_figures,
        _deploy_two_versions,
        _switch,
    ),
    "overload": Scenario(
        "Twice what the host can do",
        60.0,
        150.0,
        [
            Limit("failed_otherwise", 0.0, "requests that failed, not refused"),
            Limit("failed_outside", 0.0, "requests failed or refused before and after"),
            Limit("host_alive", 1.0, "the host is the same process", at_least=True),
            Limit("refused", 1.0, "requests refused at overload", at_least=True),
            Limit("goodput", 0.5, "answered within 250 ms at overload, over what it answers at most", at_least=True),
            Limit("recovery_s", 5.0, "p95 back within the SLO after overload, s"),
        ],
        _overload,
        _overload_figures,
        _limit_queue,
        # Enough rows that the model is the bottleneck, not the reading of requests.
        rows=128,
    ),
    "noisy_variant": Scenario(
        "A variant is flooded beside the baseline",
        60.0,
        150.0,
        [*_ANSWERED, _ON_TIME, Limit("ratio", 1.3, f"baseline's {_RATIO}", spread="spread")],
        _noisy,
        _noisy_figures,
        _deploy_two_models,
        _flood_variant,
    ),
    "soak": Scenario(
        "One rate for half an hour",
        1800.0,
        100.0,
        [
            *_ANSWERED,
            _ON_TIME,
            _P99,
            Limit("drift", 1.3, "p99 of the last third over the first"),
            Limit("memory", 0.05, "resident memory differs by"),
            Limit("threads", 0.0, "threads more at the end"),
            Limit("files", 4.0, "open files more at the end, connections aside"),
        ],
        _soak,
        _soak_figures,
        during=_watch,
    ),
}
