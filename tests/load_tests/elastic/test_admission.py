# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from elastic_training.admission import CountFilter, PoissonFilter
from load_tests.elastic import admission


def test_exact_count_loses_what_a_count_in_numpy_loses() -> None:
    stream = admission.zipf_stream(20_000, 20_000, 1.1, 3)
    figures = admission.pass_stream(stream, CountFilter(5), 0)
    seen, lost = np.zeros(20_000, int), 0
    totals = np.bincount(stream, minlength=20_000)
    for at in range(0, stream.size, admission.BATCH):
        keys = stream[at : at + admission.BATCH]
        np.add.at(seen, keys, 1)
        if at >= stream.size // 10:
            lost += int(((seen[keys] < 5) & (totals[keys] >= 5)).sum())
    assert figures["lost"] == lost
    assert figures["let_in"] == 0
    assert figures["rows"] == (totals >= 5).sum()


def test_fitted_prior_loses_less_than_exact_count_and_lets_fewer_in_than_published() -> None:
    stream = admission.zipf_stream(100_000, 100_000, 1.05, 1)
    exact = admission.pass_stream(stream, CountFilter(5), 1)
    fitted = admission.pass_stream(stream, PoissonFilter(5, horizon=stream.size), 1)
    published = admission.pass_stream(stream, PoissonFilter(5, horizon=stream.size, prior="none"), 1)
    assert fitted["lost"] < 0.5 * exact["lost"]
    assert fitted["let_in"] < 0.05
    assert published["let_in"] > 0.2
    assert published["lost"] < fitted["lost"]


def test_keys_that_come_and_go_stay_within_their_lives() -> None:
    stream = admission.passing_stream(50_000, 0.1, 1)
    assert 0.6 * 50_000 < stream.size < 1.4 * 50_000
    places = [np.flatnonzero(stream == key) for key in np.argsort(np.bincount(stream))[-50:]]
    # Nine tenths of the occurrences of a key fall into three lives.
    assert np.median([np.ptp(np.quantile(place, [0.05, 0.95])) for place in places]) < 0.4 * stream.size


def test_targets_take_the_worst_seed() -> None:
    turns = [{"recovered": 0.7, "let_in": 0.01}, {"recovered": 0.4, "let_in": 0.06}]
    case = {"stream": "zipf", "filter": "poisson, fitted prior", "turns": turns}
    targets = admission.judge({"cases": [case, {**case, "filter": "exact count"}]})
    assert [(target.value, target.ok) for target in targets] == [(0.4, False), (0.06, False)]
