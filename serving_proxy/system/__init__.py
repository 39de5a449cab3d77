# SPDX-License-Identifier: Apache-2.0
"""Access to the operating system: CPUs, files, sockets, signals, signs of life, logs."""
