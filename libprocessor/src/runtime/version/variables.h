// SPDX-License-Identifier: Apache-2.0
// Checks the variables that were restored, because TensorFlow does not.
#ifndef PROCESSOR_RUNTIME_VERSION_VARIABLES_H_
#define PROCESSOR_RUNTIME_VERSION_VARIABLES_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace processor {

/// Compares every resource variable with the shape that the graph declares for it. TensorFlow assigns values of other
/// shapes without an error, so that a checkpoint of another model would only make requests fail.
/// \return INVALID_ARGUMENT that names the variable.
absl::Status CheckVariableShapes(const tensorflow::GraphDef& graph, tensorflow::ResourceMgr& resources);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_VARIABLES_H_
