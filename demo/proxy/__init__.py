# SPDX-License-Identifier: Apache-2.0
"""Show the proxy in one run: two versions of a click model, three clients, a split, a promotion, a rollback.

Run it with ``make demo-proxy``; docs/demo.md describes each part and explains the tables.
"""
