# SPDX-License-Identifier: Apache-2.0
"""Inject faults into a real proxy and real hosts while clients send requests and check every response."""
