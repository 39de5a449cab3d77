# SPDX-License-Identifier: Apache-2.0
"""Read, add up and keep the hosts' counters: requests, failures, latencies."""
