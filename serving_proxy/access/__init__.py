# SPDX-License-Identifier: Apache-2.0
"""Tokens, logins, and addresses that only this machine can reach."""
