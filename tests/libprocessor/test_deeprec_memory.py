# SPDX-License-Identifier: Apache-2.0
"""The drop-in contract: what it leaves behind in the process of a host."""

from __future__ import annotations

from pathlib import Path

from helpers.system.programs import run_python


def test_environment_is_not_changed(tiny_model: Path) -> None:
    printed = run_python(
        """
        import ctypes, sys
        from helpers.hosts import deeprec_abi
        NAMES = ("INFERENCE_MODE", "OMP_NUM_THREADS", "KMP_BLOCKTIME", "RUN_ALL_KERNELS_INLINE")
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_char_p
        keys = dict(omp_num_threads=3, kmp_blocktime=0, enable_inline_execute=True)
        model = deeprec_abi.DropInModel(sys.argv[1], **keys)
        print([libc.getenv(name.encode()) for name in NAMES])
        model.close()
        deeprec_abi.DropInModel(sys.argv[1], enable_inline_execute=False)
        print([libc.getenv(name.encode()) for name in NAMES])
        """,
        tiny_model,
        OMP_NUM_THREADS="7",
    )
    assert printed.splitlines() == ["[None, b'7', None, None]"] * 2


def test_requests_leak_no_memory(string_model: Path) -> None:
    grown = run_python(
        """
        import sys
        from pathlib import Path
        import numpy as np
        from helpers.hosts import deeprec_abi
        from helpers.hosts.contract_messages import encode
        def resident():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
        rows = 8
        inputs = {"item": [b"a string that is kept outside the object"] * rows, "price": np.ones(rows, np.float32)}
        few, other = {"price": np.ones(3, np.float32)}, {"price": np.ones(rows, np.int64)}
        requests = [encode(inputs), encode(inputs, outputs=["label"]), encode(inputs)[:-9], b"", b"\\xff" * 64,
                    encode(inputs, outputs=["none"]), encode(inputs, signature="none"), encode({"item": [b"x"] * rows}),
                    encode(inputs | other), encode(inputs | few)]
        with deeprec_abi.DropInModel(sys.argv[1], batch_process_count=len(requests)) as model:
            def cycle(times):
                for _ in range(times):
                    statuses = [model.process(request).status for request in requests]
                    assert statuses == [200, 200, 500, 200] + [500] * 6, statuses
                    assert model.batch(requests)[0] == 500
                    assert deeprec_abi.get_serving_model_info(model.handle).status == 200
            cycle(100)
            before = resident()
            cycle(1000)
            print(resident() - before)
        """,
        string_model,
    )
    assert int(grown) < 2048  # KiB, for 21,000 answers


def test_failed_initialize_leaks_no_memory(tiny_model: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\xff")
    grown = run_python(
        """
        import os, sys
        from helpers.hosts import deeprec_abi
        def resident():
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS"))
        def threads_and_files():
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        missing, unknown = deeprec_abi.drop_in_config(sys.argv[2]), deeprec_abi.drop_in_config(sys.argv[1], color=1)
        late = deeprec_abi.drop_in_config(sys.argv[1], warmup_file_name=sys.argv[3], session_num=2)  # fails when loaded
        def cycle(times):
            for _ in range(times):
                for config in (missing, unknown, late):
                    deeprec_abi.refusal(config)
        cycle(8)
        before, kept = resident(), threads_and_files()
        cycle(16)
        assert threads_and_files() == kept, (threads_and_files(), kept)
        print(resident() - before)
        """,
        tiny_model,
        tmp_path / "missing",
        damaged,
    )
    assert int(grown) < 2048  # KiB
