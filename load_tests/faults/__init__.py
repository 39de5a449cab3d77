# SPDX-License-Identifier: Apache-2.0
"""Faults on purpose, against a real proxy and real hosts, while clients ask and check every answer."""
