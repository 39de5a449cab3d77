# SPDX-License-Identifier: Apache-2.0
"""What the proxy knows of models and of hosts: immutable records."""
