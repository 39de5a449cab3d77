# SPDX-License-Identifier: Apache-2.0
"""Run `serving-proxy` as `python -m serving_proxy`."""

from __future__ import annotations

from serving_proxy.cli import main

if __name__ == "__main__":
    main()
