// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/variables.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace processor {
namespace {

std::string Text(const tensorflow::NodeDef& node, const char* attr) {
  const auto found = node.attr().find(attr);
  return found == node.attr().end() ? "" : found->second.s();
}

}  // namespace

absl::Status CheckVariableShapes(const tensorflow::GraphDef& graph, tensorflow::ResourceMgr& resources) {
  for (const tensorflow::NodeDef& node : graph.node()) {
    const auto declared = node.attr().find("shape");
    if (node.op() != "VarHandleOp" || declared == node.attr().end()) continue;
    std::string container = Text(node, "container"), name = Text(node, "shared_name");
    if (container.empty()) container = resources.default_container();
    if (name.empty()) name = node.name();
    tensorflow::Var* restored = nullptr;
    // A variable that was not restored may be unused.
    if (!resources.Lookup(container, name, &restored).ok()) continue;
    const tensorflow::core::RefCountPtr<tensorflow::Var> variable(restored);
    tensorflow::PartialTensorShape expected;
    if (!tensorflow::PartialTensorShape::BuildPartialTensorShape(declared->second.shape(), &expected).ok()) continue;
    const tensorflow::TensorShape& found = variable->tensor()->shape();
    if (variable->tensor()->IsInitialized() && !expected.IsCompatibleWith(found)) {
      return absl::InvalidArgumentError(absl::StrCat("variable '", name, "': shape ", found.DebugString(),
                                                     " found, expected ", expected.DebugString()));
    }
  }
  return absl::OkStatus();
}

}  // namespace processor
