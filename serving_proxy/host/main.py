# SPDX-License-Identifier: Apache-2.0
"""The host program: options, logs, limits of the process, then the server until its end."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

from processor import Host, ProcessorError
from serving_proxy.host.options import MIB, HostOptions, parse
from serving_proxy.system.cpus import parse_cpus
from serving_proxy.system.listening import raise_file_limit

log = logging.getLogger("serving_proxy.host")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a host until it is told to stop; return its exit code."""
    options = parse(arguments)
    _set_up_logs(options)
    try:
        if options.cpus is not None:
            # Before the library is loaded, because its threads inherit the CPUs of the process.
            os.sched_setaffinity(0, parse_cpus(options.cpus, "--cpus"))
        raise_file_limit()
        with Host(
            options.state_dir,
            options.host_id,
            options.maintenance_cpus,
            owns_process=True,
            max_request_bytes=options.max_request_mb_in_flight * MIB,
        ) as host:
            asyncio.run(_serve(host, options))
    except (ProcessorError, OSError, ValueError, RuntimeError) as error:
        log.error("%s", error)
        return 1
    return 0


async def _serve(host: Host, options: HostOptions) -> None:
    # Imported late, so that an invalid state directory is reported before a second is spent on importing servers.
    from serving_proxy.host.server import HostServer

    await HostServer(host, options).run()


def _set_up_logs(options: HostOptions) -> None:
    from serving_proxy.system import logs

    logs.set_up(options.log_level.upper())
    if options.log_format == "text":
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        for handler in logging.getLogger().handlers:
            handler.setFormatter(formatter)
