# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from helpers.hosts.request_log_files import prediction_log, write_log
from helpers.proxies.lifecycle_records import deployed
from serving_proxy.deploy.control import Control, ControlOptions
from serving_proxy.errors import NotFoundError
from serving_proxy.records.models import RequestLog, Settings
from serving_proxy.request_log.files import log_files
from serving_proxy.request_log.operations import RequestLogs
from serving_proxy.store import Database, Repository


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(ControlOptions(tmp_path), Repository(Database(tmp_path / "proxy.sqlite3")))


def _log(control: Control, *values: float) -> None:
    for number, value in enumerate(values):
        write_log(control.options.state_dir, "ranking", number, [prediction_log("ranking", [value])])


def test_merged_files_that_no_version_names_go_after_a_while(control: Control) -> None:
    control.store([deployed(None, 3)])
    logs = RequestLogs(control)
    _log(control, 1.0)
    used = asyncio.run(logs.merge("ranking")).path
    _log(control, 2.0)
    unused = asyncio.run(logs.merge("ranking")).path
    _log(control, 3.0)
    fresh = asyncio.run(logs.merge("ranking")).path
    control.store([deployed(control.models["ranking"], 4, settings=Settings(warmup_file=str(used)))])
    for path in (used, unused):
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    asyncio.run(logs.clean())
    assert [path.exists() for path in (used, unused, fresh)] == [True, False, True]


def test_excess_files_are_removed(control: Control) -> None:
    control.store([deployed(None, 3).change(request_log=RequestLog(sample=100, max_files=2))])
    _log(control, 1.0, 2.0, 3.0)
    asyncio.run(RequestLogs(control).clean())
    assert [log_file.began for log_file in log_files(control.options.state_dir, "ranking")] == [1, 2]


def test_without_a_limit_no_file_is_removed(control: Control) -> None:
    control.store([deployed(None, 3)])
    _log(control, *range(12))
    asyncio.run(RequestLogs(control).clean())
    assert len(log_files(control.options.state_dir, "ranking")) == 12


def test_only_changes_of_the_log_are_events(control: Control) -> None:
    control.store([deployed(None, 3)])
    logs = RequestLogs(control)
    for _ in range(2):
        logs.configure("ranking", RequestLog(sample=150))
        logs.configure("ranking", RequestLog(sample=150))
        logs.configure("ranking", None)
    texts = [event.message for event in control.repository.events() if event.kind == "log"]
    assert texts == [f"ranking: {share} of the requests recorded" for share in ("1.5 %", "none")] * 2


def test_a_model_that_is_not_there_has_no_log(control: Control) -> None:
    logs = RequestLogs(control)
    for asked in (logs.show, logs.merge, logs.delete):
        with pytest.raises(NotFoundError):
            asyncio.run(asked("nothing"))
