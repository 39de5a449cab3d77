# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from cost_model.cpu_time import Ticks, Watch, busy_share, read_ticks

CPU = min(os.sched_getaffinity(0))
SPIN = f"import os; os.sched_setaffinity(0, {{{CPU}}}); print(flush=True)\nwhile True: pass"


def test_ticks_are_read_for_each_cpu(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu  1 1 1 1 1 1 1 1 1 1\ncpu3 10 2 3 80 5 1 2 4 9 9\nintr 7\n", encoding="ascii")
    assert read_ticks(file) == {3: Ticks(10, 2, 3, 80, 5, 1, 2, 4)}
    assert (read_ticks(file)[3].busy, read_ticks(file)[3].total) == (22, 107)


def test_cpu_time_of_other_processes_is_measured() -> None:
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            watch = Watch([CPU])
            time.sleep(0.4)
            # That CPU is never idle, regardless of other programs.
            assert watch.others() > 0.8
            assert watch.busy() > 0.8
        finally:
            other.kill()


def test_cpu_time_of_own_threads_is_not_counted_as_others() -> None:
    done = threading.Event()

    def spin() -> None:
        os.sched_setaffinity(0, {CPU})
        while not done.is_set():
            pass

    began = time.process_time()
    watch = Watch([CPU])
    thread = threading.Thread(target=spin)
    start = time.monotonic()

    def share() -> float:
        return (time.process_time() - began) / (time.monotonic() - start)

    thread.start()
    try:
        time.sleep(0.5)
        # On a busy machine time passes between the two looks of the watch.
        before, own, after = share(), watch.busy() - watch.others(), share()
        assert min(before, after) - 0.1 < own < max(before, after) + 0.1
    finally:
        done.set()
        thread.join()


def test_busy_share_covers_the_whole_machine() -> None:
    assert 0 <= busy_share(0.05) <= 1
