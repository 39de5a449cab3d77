// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/increment.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/tstring.h"
#include "tensorflow/core/util/tensor_bundle/tensor_bundle.h"

namespace processor {
namespace {

using tensorflow::BundleReader;
using tensorflow::Tensor;

constexpr char kRowKeys[] = "-sparse_incr_keys", kRowValues[] = "-sparse_incr_values";

absl::Status ReadTensor(BundleReader& bundle, const std::string& name, Tensor* tensor) {
  tensorflow::DataType dtype;
  tensorflow::TensorShape shape;
  if (absl::Status s = bundle.LookupDtypeAndShape(name, &dtype, &shape); !s.ok()) return s;
  *tensor = Tensor(dtype, shape);
  return bundle.Lookup(name, tensor);
}

// Writes rows over those of a tensor [rows, ...].
absl::Status PutRows(const Tensor& keys, const Tensor& values, Tensor* whole) {
  const int64_t rows = whole->dims() == 0 ? 0 : whole->dim_size(0);
  const size_t size = rows == 0 ? 0 : whole->TotalBytes() / static_cast<size_t>(rows);
  if (keys.dtype() != tensorflow::DT_INT64 || values.dtype() != whole->dtype() ||
      !tensorflow::DataTypeCanUseMemcpy(values.dtype()) ||
      values.TotalBytes() != size * static_cast<size_t>(keys.NumElements())) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys ", tensorflow::DataTypeString(keys.dtype()), keys.shape().DebugString(), " and rows ",
                     tensorflow::DataTypeString(values.dtype()), values.shape().DebugString(), ", expected int64 and ",
                     tensorflow::DataTypeString(whole->dtype()), " for ", whole->shape().DebugString()));
  }
  auto* const target = static_cast<char*>(whole->data());
  const auto* const source = static_cast<const char*>(values.data());
  for (int64_t i = 0; i < keys.NumElements(); ++i) {
    const int64_t row = keys.flat<int64_t>()(i);
    if (row < 0 || row >= rows)
      return absl::InvalidArgumentError(absl::StrCat("row ", row, ", expected one of ", rows));
    std::memcpy(target + static_cast<size_t>(row) * size, source + static_cast<size_t>(i) * size, size);
  }
  return absl::OkStatus();
}

// Reads a tensor of the increment, if it has one; `found`: whether it has.
absl::Status ReadChanged(BundleReader& full, BundleReader& changes, const std::string& name, Tensor* tensor,
                         bool* found) {
  *found = true;
  if (changes.Contains(name)) return ReadTensor(changes, name, tensor);
  *found = changes.Contains(name + kRowKeys);
  if (!*found) return absl::OkStatus();
  Tensor keys, values, whole;
  if (absl::Status s = ReadTensor(changes, name + kRowKeys, &keys); !s.ok()) return s;
  if (absl::Status s = ReadTensor(changes, name + kRowValues, &values); !s.ok()) return s;
  if (absl::Status s = ReadTensor(full, name, &whole); !s.ok()) return s;
  if (absl::Status s = PutRows(keys, values, &whole); !s.ok()) return s;
  *tensor = std::move(whole);
  return absl::OkStatus();
}

// Returns the strings of the constant that an input of a node is; none for anything else.
std::vector<std::string> TextsOf(const std::map<std::string, const tensorflow::NodeDef*>& nodes,
                                 const tensorflow::NodeDef& node, int input) {
  std::vector<std::string> texts;
  const auto found = input < node.input_size() ? nodes.find(node.input(input)) : nodes.end();
  if (found == nodes.end() || found->second->op() != "Const") return texts;
  const auto value = found->second->attr().find("value");
  Tensor tensor;
  if (value == found->second->attr().end() || !tensor.FromProto(value->second.tensor()) ||
      tensor.dtype() != tensorflow::DT_STRING) {
    return texts;
  }
  for (int64_t i = 0; i < tensor.NumElements(); ++i) texts.emplace_back(tensor.flat<tensorflow::tstring>()(i));
  return texts;
}

}  // namespace

absl::Status AddIncrement(const tensorflow::GraphDef& graph, const std::string& full, const std::string& increment,
                          std::vector<std::pair<std::string, Tensor>>* feeds) {
  const auto named = [&](const absl::Status& status, const std::string& what) {
    return absl::Status(status.code(),
                        absl::StrCat("incremental checkpoint '", increment, "': ", what, status.message()));
  };
  tensorflow::Env* const env = tensorflow::Env::Default();
  BundleReader whole(env, full), changes(env, increment);
  if (!whole.status().ok()) return named(whole.status(), "");
  if (!changes.status().ok()) return named(changes.status(), "");
  std::map<std::string, const tensorflow::NodeDef*> nodes;
  for (const tensorflow::NodeDef& node : graph.node()) nodes[node.name()] = &node;
  bool any = false;
  for (const tensorflow::NodeDef& node : graph.node()) {
    if (node.op() != "RestoreV2") continue;
    const std::vector<std::string> names = TextsOf(nodes, node, 1), slices = TextsOf(nodes, node, 2);
    for (size_t i = 0; i < names.size(); ++i) {
      Tensor tensor;
      bool found = false;
      const std::string what = absl::StrCat("'", names[i], "': ");
      if (absl::Status s = ReadChanged(whole, changes, names[i], &tensor, &found); !s.ok()) return named(s, what);
      if (!found) continue;
      if (i < slices.size() && !slices[i].empty()) {
        return named(absl::UnimplementedError("a slice of a partitioned variable, expected a whole one"), what);
      }
      any = true;
      feeds->emplace_back(absl::StrCat(node.name(), ":", i), std::move(tensor));
    }
  }
  if (!any) return named(absl::InvalidArgumentError("no variable of the model, expected some"), "");
  return absl::OkStatus();
}

}  // namespace processor
