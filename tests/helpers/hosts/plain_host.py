# SPDX-License-Identifier: Apache-2.0
"""Run a host in a separate process: `python tests/helpers/hosts/plain_host.py STATE_DIR [FILE_SIZE_LIMIT]`.

It reads requests of a model "m" from stdin, one per line in hexadecimal, and prints a line for each: the version and
the response. With a limit, files that it writes cannot become larger, as on a full disk.
"""

from __future__ import annotations

import resource
import signal
import sys
import time

import processor


def main() -> None:
    if len(sys.argv) > 2:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with processor.Host(sys.argv[1]) as host:
        while host.status()["state"] != "ready":
            time.sleep(0.01)
        print("ready", flush=True)
        for line in sys.stdin:
            answer = host.process("eas", bytes.fromhex(line), model_name="m")
            print(answer.model_version, answer.data.hex(), flush=True)


if __name__ == "__main__":
    main()
