# SPDX-License-Identifier: Apache-2.0
"""The operating system: CPUs, files, sockets, signals, signs of life, logs."""
