# SPDX-License-Identifier: Apache-2.0
"""The files of a state directory through which the proxy and its hosts communicate."""
