# SPDX-License-Identifier: Apache-2.0
"""A server of S3 on this machine: versitygw if it is installed, else moto's."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from load_tests.ports import free_port

__all__ = ["BUCKET", "s3_server"]

BUCKET = "models"
_USER, _SECRET = "benchmark", "a secret of the benchmark"
_START_S = 60.0


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Run a server with an empty bucket, and set the environment with which clients find it; yield its name.

    Parameters
    ----------
    folder : Path
        Where its objects and its log are. moto keeps objects in memory.
    """
    port = free_port()
    objects = folder / "objects"
    (objects / BUCKET).mkdir(parents=True)
    versitygw = os.environ.get("VERSITYGW") or shutil.which("versitygw")
    if versitygw is not None:
        command = [versitygw, "--port", f"127.0.0.1:{port}", "posix", str(objects)]
    else:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    values = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": _USER,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
    }
    environment = {**os.environ, "ROOT_ACCESS_KEY": _USER, "ROOT_SECRET_KEY": _SECRET}
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        _wait(process, port, folder / "s3.log")
        if versitygw is None:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request).read()
        os.environ.update(values)
        yield "moto" if versitygw is None else "versitygw"
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"S3 server: did not start: {log.read_text(errors='replace')[-400:]}")
        time.sleep(0.02)
