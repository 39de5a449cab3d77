// SPDX-License-Identifier: Apache-2.0
#include "src/base/signature.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "tensorflow/core/framework/tensor.pb.h"

namespace processor {
namespace {

std::vector<TensorSpec> Sorted(const google::protobuf::Map<std::string, tensorflow::TensorInfo>& infos,
                               int64_t max_rows) {
  // A protobuf map has no order of its own; requests and cached callables need one.
  std::map<std::string, const tensorflow::TensorInfo*> sorted;
  for (const auto& [alias, info] : infos) sorted[alias] = &info;
  std::vector<TensorSpec> specs;
  for (const auto& [alias, info] : sorted) {
    TensorSpec spec;
    spec.alias = alias;
    spec.tensor_name = info->name();
    spec.dtype = info->dtype();
    // A shape that is not valid must not abort the process, as the constructor would.
    if (!tensorflow::PartialTensorShape::BuildPartialTensorShape(info->tensor_shape(), &spec.shape).ok()) {
      spec.shape = tensorflow::PartialTensorShape();
    }
    spec.open_rows = spec.shape.unknown_rank() || (spec.shape.dims() > 0 && spec.shape.dim_size(0) < 0);
    spec.max_rows = max_rows;
    specs.push_back(std::move(spec));
  }
  return specs;
}

NameIndex IndexOfSpecs(const std::vector<TensorSpec>& specs) {
  NameIndex index;
  for (size_t i = 0; i < specs.size(); ++i) index.Add(specs[i].alias, static_cast<int>(i));
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string& name = specs[i].tensor_name;
    index.Add(name, static_cast<int>(i));
    const size_t colon = name.rfind(":0");
    if (colon != std::string::npos && colon + 2 == name.size()) index.Add(name.substr(0, colon), static_cast<int>(i));
  }
  return index;
}

}  // namespace

Signature::Signature(std::string name, const tensorflow::SignatureDef& def, int64_t max_rows)
    : name_(std::move(name)),
      method_name_(def.method_name()),
      inputs_(Sorted(def.inputs(), max_rows)),
      outputs_(Sorted(def.outputs(), max_rows)),
      input_index_(IndexOfSpecs(inputs_)),
      output_index_(IndexOfSpecs(outputs_)) {}

absl::Status Signature::ReadDefaults(const tensorflow::SignatureDef& def) {
  for (const auto& [alias, proto] : def.defaults()) {
    const auto wrong = [&, alias = &alias](const auto&... words) {
      return absl::InvalidArgumentError(
          absl::StrCat("signature '", name_, "': default of input '", *alias, "': ", words...));
    };
    const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                    [alias = &alias](const TensorSpec& spec) { return spec.alias == *alias; });
    if (found == inputs_.end()) {
      Log(Severity::kWarning,
          absl::StrCat("signature '", name_, "': default of input '", alias, "', which it does not have, is ignored"));
      continue;
    }
    tensorflow::Tensor value;
    if (!value.FromProto(proto)) return wrong("no tensor, expected one");
    if (value.dtype() != found->dtype) {
      return wrong("dtype ", tensorflow::DataType_Name(value.dtype()), ", expected ",
                   tensorflow::DataType_Name(found->dtype));
    }
    if (!found->shape.IsCompatibleWith(value.shape())) {
      return wrong("shape ", value.shape().DebugString(), ", expected ", found->shape.DebugString());
    }
    found->default_value = std::move(value);
  }
  return absl::OkStatus();
}

absl::Status SignatureSet::Load(const tensorflow::MetaGraphDef& meta_graph, int64_t max_rows) {
  std::map<std::string, const tensorflow::SignatureDef*> sorted;
  for (const auto& [name, def] : meta_graph.signature_def()) {
    if (name.rfind("__saved_model_", 0) != 0) sorted[name] = &def;
  }
  signatures_.clear();
  for (const auto& [name, def] : sorted) {
    auto signature = std::make_unique<Signature>(name, *def, max_rows);
    if (absl::Status s = signature->ReadDefaults(*def); !s.ok()) return s;
    signatures_.push_back(std::move(signature));
  }
  return absl::OkStatus();
}

const Signature* SignatureSet::Find(std::string_view name) const {
  if (name.empty()) return default_;
  for (const auto& signature : signatures_) {
    if (signature->name() == name) return signature.get();
  }
  return nullptr;
}

int SignatureSet::IndexOf(const Signature* signature) const {
  const auto it =
      std::find_if(signatures_.begin(), signatures_.end(), [signature](const auto& s) { return s.get() == signature; });
  return it == signatures_.end() ? -1 : static_cast<int>(it - signatures_.begin());
}

}  // namespace processor
