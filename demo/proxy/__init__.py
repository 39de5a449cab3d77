# SPDX-License-Identifier: Apache-2.0
"""The proxy at work in one run: two versions of a click model, three clients, a split, a promotion, a roll-back.

Run it with ``make demo-proxy``; docs/demo.md says what each part does and how to read the tables.
"""
