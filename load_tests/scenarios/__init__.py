# SPDX-License-Identifier: Apache-2.0
"""Run load scenarios against a real proxy and host; each passes or fails by its limits."""
