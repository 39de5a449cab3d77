# SPDX-License-Identifier: Apache-2.0
"""Programs that work for the proxy in separate processes."""
