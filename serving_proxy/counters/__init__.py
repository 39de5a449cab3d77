# SPDX-License-Identifier: Apache-2.0
"""Reads, adds up and keeps what hosts count: requests, failures, latencies."""
