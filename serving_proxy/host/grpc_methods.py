# SPDX-License-Identifier: Apache-2.0
"""The table of gRPC methods and the library's methods."""

from __future__ import annotations

from serving_proxy.host.call import Operation

PREDICTION = "tensorflow.serving.PredictionService"
MODEL = "tensorflow.serving.ModelService"
INFERENCE = "inference.GRPCInferenceService"

SERVICES = (PREDICTION, MODEL, INFERENCE)
# Short names for which clients may query the health, too.
SHORT_NAMES = ("PredictionService", "ModelService")

_TFSERVING = {
    PREDICTION: ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"),
    MODEL: ("GetModelStatus",),
}
_KSERVE = {
    INFERENCE: (
        "ModelInfer",
        "ModelMetadata",
        "ModelReady",
        "ServerMetadata",
        "ServerLive",
        "ServerReady",
        "RepositoryIndex",
        "ModelConfig",
        "ModelStatistics",
    )
}

INFER = Operation("kserve", "ModelInfer")
STREAM = f"/{INFERENCE}/ModelStreamInfer"
RELOAD = f"/{MODEL}/HandleReloadConfigRequest"
LOAD = f"/{INFERENCE}/RepositoryModelLoad"
UNLOAD = f"/{INFERENCE}/RepositoryModelUnload"

UNARY: dict[str, Operation] = {
    f"/{service}/{method}": Operation(protocol, method)
    for protocol, services in (("tfserving", _TFSERVING), ("kserve", _KSERVE))
    for service, methods in services.items()
    for method in methods
}
