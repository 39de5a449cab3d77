# SPDX-License-Identifier: Apache-2.0
"""Why an agent has no answer of a proxy, logged once although several loops of it ask."""

from __future__ import annotations

import logging

log = logging.getLogger("serving_proxy.agent")


class LinkFaults:
    """The faults of the requests that an agent repeats, by what they are about."""

    def __init__(self) -> None:
        self._faults: dict[str, str] = {}

    def failed(self, request: str, fault: str) -> None:
        """Log a fault, unless a request has met it before and nothing else since."""
        is_known = fault in self._faults.values()
        self._faults[request] = fault
        if not is_known:
            log.warning("%s; hosts keep serving", fault)

    def answered(self, request: str, server: str) -> None:
        """Log which proxy is followed once all requests that had failed are answered."""
        if self._faults.pop(request, None) is not None and not self._faults:
            log.info("follows %s", server)
