# SPDX-License-Identifier: Apache-2.0
"""Which method of the library a gRPC method is."""

from __future__ import annotations

from serving_proxy.host.call import Operation

PREDICTION = "tensorflow.serving.PredictionService"
MODEL = "tensorflow.serving.ModelService"
INFERENCE = "inference.GRPCInferenceService"

SERVICES = (PREDICTION, MODEL, INFERENCE)
# What clients ask the health of as well.
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
