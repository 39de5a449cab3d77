# SPDX-License-Identifier: Apache-2.0
"""The admin API: every verb as REST, with an OpenAPI description, events as a stream, metrics and health."""

from __future__ import annotations

from serving_proxy.api.app import create_app

__all__ = ["create_app"]
