// SPDX-License-Identifier: Apache-2.0
// Looks at the variables that were restored, since restoring does not.
#ifndef PROCESSOR_RUNTIME_VERSION_VARIABLES_H_
#define PROCESSOR_RUNTIME_VERSION_VARIABLES_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace processor {

/// Compares every resource variable with the shape that the graph declares for it: assigning a value of another shape
/// is no error to TensorFlow, so that a checkpoint of another model would be found out by requests.
/// \return INVALID_ARGUMENT that names the variable.
absl::Status CheckVariableShapes(const tensorflow::GraphDef& graph, tensorflow::ResourceMgr& resources);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_VARIABLES_H_
