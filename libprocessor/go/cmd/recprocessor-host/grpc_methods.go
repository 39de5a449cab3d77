// SPDX-License-Identifier: Apache-2.0

package main

// operation is a method of a protocol of the library; docs/model_host.md lists them.
type operation struct{ protocol, method string }

const (
	predictionService = "tensorflow.serving.PredictionService"
	modelService      = "tensorflow.serving.ModelService"
	inferenceService  = "inference.GRPCInferenceService"

	reloadMethod = "HandleReloadConfigRequest"
	streamMethod = "ModelStreamInfer"
	loadMethod   = "RepositoryModelLoad"
	unloadMethod = "RepositoryModelUnload"
)

// grpcMethods are the methods that the library handles, by service.
var grpcMethods = map[string]struct {
	protocol string
	methods  []string
}{
	predictionService: {"tfserving", []string{"Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"}},
	modelService:      {"tfserving", []string{"GetModelStatus"}},
	inferenceService: {"kserve", []string{
		"ModelInfer", "ModelMetadata", "ModelReady", "ServerMetadata", "ServerLive", "ServerReady", "RepositoryIndex",
		"ModelConfig", "ModelStatistics",
	}},
}

// healthNames are the names, beside models, whose health clients may check.
var healthNames = []string{
	"", predictionService, modelService, inferenceService, "PredictionService", "ModelService",
}
