# SPDX-License-Identifier: Apache-2.0
"""The Python client of the admin API."""

from __future__ import annotations

from serving_proxy.client.client import DEFAULT_SERVER, Client, Json

__all__ = ["DEFAULT_SERVER", "Client", "Json"]
