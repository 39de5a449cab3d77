# SPDX-License-Identifier: Apache-2.0
"""A host in a process of its own: `python tests/helpers/hosts/plain_host.py STATE_DIR [FILE_SIZE_LIMIT]`.

Answers the requests of a model "m" that it reads from stdin, one in hexadecimal a line, by a line each: the version and
the response. With a limit, files that it writes may not become larger, as on a full disk.
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
