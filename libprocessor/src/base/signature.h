// SPDX-License-Identifier: Apache-2.0
// The signatures of a SavedModel as requests use them: names to positions, dtypes and shapes. A model version owns them.
// They do not change after loading, so any thread may read them.
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
  /// Whether the request chooses the first dimension, which then is at most max_rows.
  bool open_rows = true;
  int64_t max_rows = kDefaultMaxRows;
  /// The value of an input in requests that omit it. Without one, such requests are refused.
  std::optional<tensorflow::Tensor> default_value;
};

/// One signature. Inputs and outputs are sorted by alias; the runtime refers to them by position.
class Signature {
 public:
  Signature(std::string name, const tensorflow::SignatureDef& def, int64_t max_rows = kDefaultMaxRows);

  const std::string& name() const { return name_; }
  const std::string& method_name() const { return method_name_; }
  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }

  /// Reads SignatureDef.defaults. \return INVALID_ARGUMENT that names an input whose default does not fit it.
  absl::Status ReadDefaults(const tensorflow::SignatureDef& def);

  /// Returns the position of an input by alias or else by tensor name ("x:0", or "x" for output 0); -1 if there is none.
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

/// All signatures of a model that can be served, and the default one.
class SignatureSet {
 public:
  SignatureSet() = default;
  SignatureSet(const SignatureSet&) = delete;
  SignatureSet& operator=(const SignatureSet&) = delete;

  /// Reads all signatures of `meta_graph` except the internal ones ("__saved_model_*").
  /// \return as Signature::ReadDefaults().
  absl::Status Load(const tensorflow::MetaGraphDef& meta_graph, int64_t max_rows = kDefaultMaxRows);
  void set_default(const Signature* signature) { default_ = signature; }

  /// Returns a signature by name, or the default one for ""; nullptr if there is none.
  const Signature* Find(std::string_view name) const;
  const Signature* default_signature() const { return default_; }
  const std::vector<std::unique_ptr<Signature>>& all() const { return signatures_; }
  /// Returns the position of a signature in all().
  int IndexOf(const Signature* signature) const;

 private:
  std::vector<std::unique_ptr<Signature>> signatures_;
  const Signature* default_ = nullptr;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_SIGNATURE_H_
