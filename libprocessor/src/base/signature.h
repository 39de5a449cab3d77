// SPDX-License-Identifier: Apache-2.0
// The signatures of a SavedModel, as requests see them: names to positions, dtypes, shapes.
//
// Immutable after construction; any thread may read.
#ifndef PROCESSOR_BASE_SIGNATURE_H_
#define PROCESSOR_BASE_SIGNATURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/base/name_index.h"
#include "src/base/request_rows.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace processor {

/// One input or output of a signature.
struct TensorSpec {
  std::string alias;        // key in the signature: "dense"
  std::string tensor_name;  // name in the graph: "serving_default_dense:0"
  tensorflow::DataType dtype = tensorflow::DT_INVALID;
  tensorflow::PartialTensorShape shape;  // rank may be unknown
  /// Whether the request chooses the first dimension, which then is max_rows at most.
  bool open_rows = true;
  int64_t max_rows = kDefaultMaxRows;
  /// Of an input: its value in requests that leave it out. None: they are refused.
  std::optional<tensorflow::Tensor> default_value;
};

/// One signature. Inputs and outputs are sorted by alias; positions in them are the currency of the runtime.
class Signature {
 public:
  Signature(std::string name, const tensorflow::SignatureDef& def, int64_t max_rows = kDefaultMaxRows);

  const std::string& name() const { return name_; }
  const std::string& method_name() const { return method_name_; }
  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }

  /// Takes SignatureDef.defaults. \return INVALID_ARGUMENT with the input whose default is no tensor that it takes.
  absl::Status ReadDefaults(const tensorflow::SignatureDef& def);

  /// Position of an input by alias or, failing that, tensor name ("x:0", or "x" for output 0); -1 if there is none.
  int FindInput(std::string_view key) const { return input_index_.Find(key); }
  int FindOutput(std::string_view key) const { return output_index_.Find(key); }

 private:
  std::string name_;
  std::string method_name_;
  std::vector<TensorSpec> inputs_;
  std::vector<TensorSpec> outputs_;
  NameIndex input_index_;
  NameIndex output_index_;
};

/// All signatures of a model that can be served, and which of them is meant by no name.
class SignatureSet {
 public:
  SignatureSet() = default;
  SignatureSet(const SignatureSet&) = delete;
  SignatureSet& operator=(const SignatureSet&) = delete;

  /// Takes all signatures of `meta_graph` but the internal ones ("__saved_model_*").
  /// \return as Signature::ReadDefaults().
  absl::Status Load(const tensorflow::MetaGraphDef& meta_graph, int64_t max_rows = kDefaultMaxRows);
  void set_default(const Signature* signature) { default_ = signature; }

  /// The signature of that name; the default for ""; nullptr if there is none.
  const Signature* Find(std::string_view name) const;
  const Signature* default_signature() const { return default_; }
  const std::vector<std::unique_ptr<Signature>>& all() const { return signatures_; }
  /// Position in all().
  int IndexOf(const Signature* signature) const;

 private:
  std::vector<std::unique_ptr<Signature>> signatures_;
  const Signature* default_ = nullptr;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_SIGNATURE_H_
