# SPDX-License-Identifier: Apache-2.0
"""Load scenarios against a real proxy and host, each with limits that it passes or fails."""
