# SPDX-License-Identifier: Apache-2.0
"""Judge versions by the hosts' counters: pure functions from counters and limits to a verdict, and the loop around
them.
"""
