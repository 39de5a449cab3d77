# SPDX-License-Identifier: Apache-2.0
"""The control plane: deploy models, split traffic between their versions, watch hosts and roll back.

Requests never pass through it. It writes `desired.json` into a state directory, which hosts follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving_proxy.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    # Imported late: the host, which runs in a process of its own, needs no HTTP client.
    if name != "Client":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from serving_proxy.client import Client

    return Client


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
