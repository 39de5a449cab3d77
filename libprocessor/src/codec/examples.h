// SPDX-License-Identifier: Apache-2.0
// What the codecs of Classify, Regress and MultiInference share, as messages and as JSON: requests of tf.Examples, whose
// serialized bytes are the one input of a signature, and responses of labels, scores and values. Any thread may call
// these functions.
#ifndef PROCESSOR_CODEC_EXAMPLES_H_
#define PROCESSOR_CODEC_EXAMPLES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/codec.h"

namespace processor {

enum class ExampleMethod : uint8_t { kClassify, kRegress };

/// Returns the method name that the signature must have: "tensorflow/serving/classify" or ".../regress".
std::string_view MethodName(ExampleMethod method);

/// The most examples of a request. The limit is needed because an example of two bytes takes more memory than that.
constexpr size_t kMaxExamples = size_t{1} << 20;

/// Serialized tf.Examples, and one that is merged into each of them. Readers stop at kMaxExamples + 1 examples, because
/// such a request is refused.
struct ExampleBatch {
  std::vector<std::string_view> examples;
  std::string_view context;
};

/// One run, and where its outputs are in its fetches; -1: the signature has no such output.
struct ExampleTask {
  ExampleMethod method = ExampleMethod::kClassify;
  const Signature* signature = nullptr;
  int fetches = 0;
  int classes = -1;
  int scores = -1;
};

/// What the codecs keep of a request.
struct ExampleDetails : RequestDetails {
  int64_t examples = 0;
  std::vector<ExampleTask> tasks;  // the first is the request's own, then those of request.next
};

/// Makes the tensor of serialized examples.
/// \return INVALID_ARGUMENT if there are none, or the context would be repeated beyond a limit.
absl::Status MakeExamples(const ExampleBatch& batch, tensorflow::Tensor* dst);

/// Checks that `dst->signature` serves the method, sets its feeds and fetches, and adds the task to `details`.
/// \return INVALID_ARGUMENT for a signature of another method, FAILED_PRECONDITION for one whose inputs or outputs are
/// not those that TensorFlow Serving requires.
absl::Status PrepareTask(ExampleMethod method, const tensorflow::Tensor& examples, DecodedRequest* dst,
                         ExampleDetails* details);

/// The response to Classify. A pointer is null if the model has no labels or no scores.
struct Classifications {
  int64_t classes = 0;                          // of each example
  const tensorflow::tstring* labels = nullptr;  // [examples, classes]
  const float* scores = nullptr;                // [examples, classes]
};

/// Reads the outputs of a task. \return FAILED_PRECONDITION for outputs of another dtype or shape.
absl::Status ReadClassifications(const ExampleTask& task, const tensorflow::Tensor* outputs, int64_t examples,
                                 Classifications* dst);

/// Reads the outputs of a task; `values` [examples] points into them. \return as ReadClassifications().
absl::Status ReadRegressions(const ExampleTask& task, const tensorflow::Tensor* outputs, int64_t examples,
                             const float** values);

}  // namespace processor

#endif  // PROCESSOR_CODEC_EXAMPLES_H_
