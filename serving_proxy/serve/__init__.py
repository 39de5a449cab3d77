# SPDX-License-Identifier: Apache-2.0
"""`serving-proxy serve`: its settings and its process."""
