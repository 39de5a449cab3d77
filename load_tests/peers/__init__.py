# SPDX-License-Identifier: Apache-2.0
"""Run other inference engines on the weights of W2, for comparison: ONNX Runtime and OpenVINO.

They are in a separate environment (`make .venv-peers`), because users do not need them.
"""

from load_tests.peers._prepare import PEERS, Peer, ensure_peer_model

__all__ = ["PEERS", "Peer", "ensure_peer_model"]
