// SPDX-License-Identifier: Apache-2.0
// What Classify, Regress and MultiInference share, as messages and as JSON: requests of tf.Examples, whose serialized
// bytes a signature's one input takes, and answers of labels, scores and values.
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

/// "tensorflow/serving/classify" or ".../regress", which the signature must have.
std::string_view MethodName(ExampleMethod method);

/// How many examples a request may have: an example of two bytes takes more memory than that.
constexpr size_t kMaxExamples = size_t{1} << 20;

/// Serialized tf.Examples, and one that is merged into each of them. Of more than kMaxExamples those beyond the next are
/// left out, for the request is refused.
struct ExampleBatch {
  std::vector<std::string_view> examples;
  std::string_view context;
};

/// Where the outputs of one run are in its fetches; -1: the signature has none of that name.
struct ExampleTask {
  ExampleMethod method = ExampleMethod::kClassify;
  const Signature* signature = nullptr;
  int fetches = 0;
  int classes = -1;
  int scores = -1;
};

struct ExampleDetails : RequestDetails {
  int64_t examples = 0;
  std::vector<ExampleTask> tasks;  // the first is the request's own, then those of request.next
};

/// Makes the tensor of serialized examples.
/// \return INVALID_ARGUMENT if there are none, or the context would be repeated beyond a limit.
absl::Status MakeExamples(const ExampleBatch& batch, tensorflow::Tensor* dst);

/// Checks that `dst->signature` serves the method, makes its feeds and fetches, and adds the task to `details`.
/// \return INVALID_ARGUMENT for a signature of another method, FAILED_PRECONDITION for one that is not as TensorFlow
/// Serving wants it.
absl::Status PrepareTask(ExampleMethod method, const tensorflow::Tensor& examples, DecodedRequest* dst,
                         ExampleDetails* details);

/// The answer to Classify; a null pointer where the model has no labels or no scores.
struct Classifications {
  int64_t classes = 0;                          // of each example
  const tensorflow::tstring* labels = nullptr;  // [examples, classes]
  const float* scores = nullptr;                // [examples, classes]
};

/// \param outputs  those of the task. \return FAILED_PRECONDITION for outputs of another dtype or shape.
absl::Status ReadClassifications(const ExampleTask& task, const tensorflow::Tensor* outputs, int64_t examples,
                                 Classifications* dst);

/// \param[out] values  [examples]
absl::Status ReadRegressions(const ExampleTask& task, const tensorflow::Tensor* outputs, int64_t examples,
                             const float** values);

}  // namespace processor

#endif  // PROCESSOR_CODEC_EXAMPLES_H_
