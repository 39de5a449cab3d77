# SPDX-License-Identifier: Apache-2.0
"""Define kinds of traffic: how the rate of arrivals changes, relative to the base level 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cost_model._reading import Reader, describe

KINDS = ("poisson", "mmpp")


@dataclass(frozen=True)
class Sine:
    r"""Compute the level :math:`\frac{h + l}{2} + \frac{h - l}{2} \sin(2\pi t/T)`."""

    period_s: float
    low: float
    high: float

    def at(self, time_s: float) -> float:
        middle, swing = (self.high + self.low) / 2, (self.high - self.low) / 2
        return middle + swing * math.sin(2 * math.pi * time_s / self.period_s)


@dataclass(frozen=True)
class State:
    """Describe a state of a Markov-modulated Poisson process: its level and its mean duration."""

    level: float
    mean_s: float


@dataclass(frozen=True)
class Reshare:
    """Redraw the shares of the models in `groups` at intervals; their sum stays the same."""

    every_s: float
    groups: tuple[str, ...]
    dirichlet_alpha: float


@dataclass(frozen=True)
class Event:
    """Multiply the service times of a model by `service_factor` from `at_s` on."""

    at_s: float
    model: str
    service_factor: float


@dataclass(frozen=True)
class Traffic:
    """Describe one kind of traffic.

    Parameters
    ----------
    name : str
    kind : "poisson" or "mmpp"
    duration_s : float [s]
    level : float or Sine
        Level of Poisson traffic, relative to the base rate.
    states : tuple of State
        States of an mmpp: they follow each other at random, with exponential durations.
    reshare : Reshare, optional
    events : tuple of Event
        Ordered by time.
    """

    name: str
    kind: str
    duration_s: float
    level: float | Sine = 1.0
    states: tuple[State, ...] = ()
    reshare: Reshare | None = None
    events: tuple[Event, ...] = ()

    def level_at(self, time_s: float) -> float:
        """Return the level of Poisson traffic at a time."""
        return self.level.at(time_s) if isinstance(self.level, Sine) else self.level


def parse_traffic(place: str, data: object, models: set[str], groups: set[str]) -> Traffic:
    """Parse one kind of traffic; the models and groups that it names must exist."""
    reader = Reader(place, data)
    name = reader.text("name")
    reader.place = f"{place} ({name})"
    kind = reader.text("kind", one_of=KINDS)
    duration_s = 60 * reader.number("minutes", positive=True)
    states = tuple(_state(f"{reader.place}.states[{i}]", item) for i, item in enumerate(reader.items("states", [])))
    if (kind == "mmpp") != bool(states):
        raise reader.fail("states", f"{len(states)} states with kind '{kind}'", "states for 'mmpp', and only for it")
    level = _level(reader) if "level" in reader else 1.0
    reshare = _reshare(reader.inner("reshare"), groups) if "reshare" in reader else None
    events = [_event(f"{reader.place}.events[{i}]", item, models) for i, item in enumerate(reader.items("events", []))]
    reader.end()
    ordered = tuple(sorted(events, key=lambda event: event.at_s))
    return Traffic(name, kind, duration_s, level, states, reshare, ordered)


def _level(reader: Reader) -> float | Sine:
    value: Any = reader.take("level")
    if not isinstance(value, dict):
        return Reader(reader.place, {"level": value}).number("level", positive=True)
    outer = Reader(f"{reader.place}.level", value)
    sine = outer.inner("sine")
    outer.end()
    period_s = 60 * sine.number("period_min", positive=True)
    low = sine.number("low")
    level = Sine(period_s, low, sine.number("high", least=low))
    sine.end()
    return level


def _state(place: str, data: object) -> State:
    reader = Reader(place, data)
    state = State(reader.number("level"), reader.number("mean_s", positive=True))
    reader.end()
    return state


def _reshare(reader: Reader, groups: set[str]) -> Reshare:
    every_s = reader.number("every_s", positive=True)
    named = reader.items("groups")
    for group in named:
        if not isinstance(group, str) or group not in groups:
            raise reader.fail("groups", describe(group), f"one of {', '.join(sorted(groups))}")
    reshare = Reshare(every_s, tuple(named), reader.number("dirichlet_alpha", positive=True))
    reader.end()
    return reshare


def _event(place: str, data: object, models: set[str]) -> Event:
    reader = Reader(place, data)
    at_s = reader.number("at_s")
    model = reader.text("model")
    if model not in models:
        raise reader.fail("model", repr(model), "the name of a model of this workload")
    event = Event(at_s, model, reader.number("service_factor", positive=True))
    reader.end()
    return event
