# SPDX-License-Identifier: Apache-2.0
"""Other serving engines on the weights of W2, for comparison: ONNX Runtime and OpenVINO.

They live in an environment of their own (`make .venv-peers`), since nothing that users install needs them.
"""

from load_tests.peers._prepare import PEERS, Peer, ensure_peer_model

__all__ = ["PEERS", "Peer", "ensure_peer_model"]
