# SPDX-License-Identifier: Apache-2.0
"""`training`: random updates and reads of rows on SSD, by the log of `et.Tiers` and by RocksDB.

Both have rows and batches of equal sizes and files in the page cache, and both write what they have to the device at
the end of the updates, without a log of writes before. Both are updated two million times before it is measured, and
must keep their files below 1.5 times the rows all the time. RocksDB compacts in its own threads, whose processor time
counts for it, and has no compaction left to do when the clock starts and when it stops; memory for its blocks is
limited to that which the log's index takes. It is called from Python (rocksdict), in batches; the time in which a batch
is made is measured and subtracted.

What RocksDB does with its own thresholds of compaction, which leave more space to old versions of rows, is measured
beside.

A batch of the log's updates is one of 1,024 rows, with the step of reclaiming that follows it.

`index_bytes` measures the memory for each row on SSD.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.tiers import index_bytes
from load_tests.tiers.setup import Setup

__all__ = ["BATCH", "PROGRAM", "ROW_BYTES", "SOURCES", "judge", "measure"]

PROGRAM = ROOT / "build" / "release" / "bench" / "bench_row_log"
SOURCES = (ROOT / "elastic_training" / "src", ROOT / "elastic_training" / "bench")
BATCH, ROW_BYTES = 1024, 144
_KEY_STEP = 0x9E3779B97F4A7C15


def _measure_log(folder: Path, rows: int, updates: int, reads: int) -> dict[str, Any]:
    command = [str(PROGRAM), str(folder), str(rows), str(updates), str(reads)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    shutil.rmtree(folder)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def _options(rows: int, bounded: bool) -> Any:
    """Return options; `bounded`: those with the most updates a second of the ones that keep the space below 1.5."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_write_buffer_size(8 << 20)
    options.increase_parallelism(2)
    block = rocksdict.BlockBasedOptions()
    block.set_bloom_filter(10, False)
    block.set_block_cache(rocksdict.Cache(max(16 * rows, 8 << 20)))
    options.set_block_based_table_factory(block)
    # The last level has nine tenths of the rows.
    options.set_level_compaction_dynamic_level_bytes(True)
    if bounded:
        options.set_level_zero_file_num_compaction_trigger(4)
        options.set_level_zero_slowdown_writes_trigger(6)
        options.set_level_zero_stop_writes_trigger(8)
        options.set_max_bytes_for_level_base(32 << 20)
        options.set_target_file_size_base(8 << 20)
        options.set_max_compaction_bytes(16 << 20)
        options.set_soft_pending_compaction_bytes_limit(rows * ROW_BYTES // 10)
        options.set_hard_pending_compaction_bytes_limit(rows * ROW_BYTES // 4)
    return options


def _size_of(folder: Path) -> int:
    sizes = []
    for path in folder.glob("*.sst"):
        with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
            sizes.append(path.stat().st_size)
    return sum(sizes)


def _finish_compaction(database: Any) -> None:
    database.flush()
    while any(
        database.property_int_value(f"rocksdb.{name}")
        for name in ("compaction-pending", "num-running-compactions", "num-running-flushes")
    ):
        time.sleep(0.01)


def _measure_rocksdb(folder: Path, rows: int, updates: int, reads: int, bounded: bool) -> dict[str, Any]:
    import rocksdict

    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    keys = [int(key).to_bytes(8, "little") for key in np.arange(rows, dtype=np.uint64) * np.uint64(_KEY_STEP)]
    value = bytes(ROW_BYTES - 8)
    random = np.random.default_rng(1)
    database: Any = rocksdict.Rdict(str(folder), _options(rows, bounded))
    # An attribute, which the types of rocksdict call a function.
    writes: Any = rocksdict.WriteOptions()
    writes.disable_wal = True

    def put(numbers: Any) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for number in numbers:
            batch.put(keys[number], value)
        database.write(batch, writes)

    for start in range(0, rows, BATCH):
        put(range(start, min(start + BATCH, rows)))
    batches = [random.integers(0, rows, BATCH).tolist() for _ in range(updates // BATCH)]
    for _ in range(2 * rows // BATCH):
        put(random.integers(0, rows, BATCH).tolist())
    _finish_compaction(database)
    empty = time.process_time()
    for numbers in batches[:64]:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for number in numbers:
            batch.put(keys[number], value)
    overhead = (time.process_time() - empty) / 64
    sizes, times = [], []
    cpu, wall = time.process_time(), time.perf_counter()
    for number, numbers in enumerate(batches):
        start_s = time.perf_counter()
        put(numbers)
        times.append(time.perf_counter() - start_s)
        if number % 64 == 0:
            sizes.append(_size_of(folder))
    _finish_compaction(database)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    read_batches = [[keys[i] for i in random.integers(0, rows, BATCH).tolist()] for _ in range(reads // BATCH)]
    for keys_read in read_batches[:16]:
        database[keys_read]
    read_cpu, read_wall, wrong = time.process_time(), time.perf_counter(), 0
    for keys_read in read_batches:
        wrong += sum(found != value for found in database[keys_read])
    read_cpu, read_wall = time.process_time() - read_cpu, time.perf_counter() - read_wall
    database.close()
    shutil.rmtree(folder)
    done, read = len(batches) * BATCH, len(read_batches) * BATCH
    calls = overhead * len(batches)
    return {
        "update": {"rows_per_cpu_s": done / max(cpu - calls, 1e-9), "rows_per_s": done / max(wall - calls, 1e-9)},
        "batch_s": {"median": float(np.median(times)), "worst": max(times)},
        "read": {"rows_per_cpu_s": read / read_cpu, "rows_per_s": read / read_wall},
        "space": {"median": float(np.median(sizes)) / rows / ROW_BYTES, "most": max(sizes) / rows / ROW_BYTES},
        "wrong": wrong,
    }


def measure(setup: Setup) -> dict[str, Any]:
    """Measure both, one after the other in each round; medians of rounds."""
    rows = 20_000 if setup.quick else 1_000_000
    updates, reads = 4 * rows, 2 * rows
    rounds = []
    for number in range(1 if setup.quick else 3):
        log = _measure_log(setup.folder / f"row_log_{number}", rows, updates, reads)
        rocksdb, unbounded = (
            _measure_rocksdb(setup.folder / f"rocksdb_{number}", rows, rows, reads // 2, bounded)
            for bounded in (True, False)
        )
        rounds.append({"log": log, "rocksdb": rocksdb, "rocksdb_unbounded": unbounded})
    ratios = {
        f"{what}_{clock}": float(
            np.median(
                [one["log"][what][f"rows_per_{clock}"] / one["rocksdb"][what][f"rows_per_{clock}"] for one in rounds]
            )
        )
        for what in ("update", "read")
        for clock in ("cpu_s", "s")
    }
    index = index_bytes.measure(setup.folder / "index", rows)
    worst = [one["log"]["batch_cpu_s"]["worst"] / one["log"]["batch_cpu_s"]["median"] for one in rounds]
    return {
        "rows": rows,
        "wrong": index["wrong"]
        + sum(one[side]["wrong"] for one in rounds for side in ("log", "rocksdb", "rocksdb_unbounded")),
        "index": index,
        "ratios": ratios,
        "worst_batch": float(np.median(worst)),
        "space": max(one["log"]["space"] for one in rounds),
        "rounds": rounds,
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    ratios = case["ratios"]
    return [
        Target("training: random updates over RocksDB, rows per CPU second", ratios["update_cpu_s"], 20, at_least=True),
        Target("training: warm reads over RocksDB, rows per CPU second", ratios["read_cpu_s"], 5, at_least=True),
        Target(
            "training: worst batch while reclaiming over the median, CPU time", case["worst_batch"], 2, at_least=False
        ),
        Target("training: bytes on SSD over those of live rows", case["space"], 1.5, at_least=False),
        Target("training: bytes of index for a row on SSD", case["index"]["index_bytes_per_row"], 16, at_least=False),
    ]
