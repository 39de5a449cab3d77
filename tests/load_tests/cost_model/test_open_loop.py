# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from load_tests._programs import ProgramError, run_program
from load_tests.cost_model.open_loop import ModelLoad, requests_of, run_tenants
from load_tests.request_files import read_requests


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("requests")


def test_run_records_requests_and_service_times(bench_open_loop: Path, library: Path, requests: Path) -> None:
    tenants = [ModelLoad("one", "tiny", {1: 3, 8: 1}, 200.0)]
    run = run_tenants(tenants, seconds=1.0, seed=3, cpu=0, folder=requests, careful=False)
    (model,) = run.models
    assert model.failed == 0
    assert 120 < model.requests < 280
    assert model.rows == ((1, 0.75), (8, 0.25))
    assert 0 < run.utilisation < 1
    found = {rows: times.count for rows, times in (*model.service, *model.idle_service)}
    assert set(found) == {1, 8}
    assert sum(times.count for _, times in (*model.service, *model.idle_service)) == model.requests
    # The time in the session is a part of the latency.
    assert min(times.quantiles_us[0] for _, times in model.idle_service) <= model.latency.at(0.5)
    again = run_tenants(tenants, seconds=1.0, seed=3, cpu=0, folder=requests, careful=False)
    assert again.models[0].requests == model.requests


def test_models_on_one_core_have_no_separate_service_times(
    bench_open_loop: Path, library: Path, requests: Path
) -> None:
    tenants = [ModelLoad("one", "tiny", {1: 1}, 100.0), ModelLoad("two", "tiny", {8: 1}, 50.0)]
    run = run_tenants(tenants, seconds=1.0, seed=1, cpu=0, folder=requests, careful=False)
    assert [model.name for model in run.models] == ["one", "two"]
    assert all(model.failed == 0 and not model.service for model in run.models)


def test_request_file_follows_the_weights_of_rows(requests: Path) -> None:
    path = requests_of(ModelLoad("one", "tiny", {1: 3, 8: 1}, 1.0), requests)
    sizes = [len(request) for request in read_requests(path)]
    assert len(sizes) == 256
    assert len([size for size in sizes if size > 1.5 * min(sizes)]) == 64


def test_bad_plan_is_reported(bench_open_loop: Path, library: Path, tmp_path: Path) -> None:
    arguments = {"plan": tmp_path / "none.json", "samples": tmp_path / "samples", "library": library}
    with pytest.raises(ProgramError, match=r"none.json: cannot be read"):
        run_program(bench_open_loop, arguments)
