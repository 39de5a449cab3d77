// SPDX-License-Identifier: Apache-2.0
// Reads the values of one tensor from nested JSON lists.
#ifndef PROCESSOR_CODEC_JSON_VALUES_H_
#define PROCESSOR_CODEC_JSON_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/codec/feed_arena.h"
#include "src/codec/json_document.h"
#include "src/codec/predict_codec.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Whether a dtype has values in JSON: numbers except complex ones, bool and string.
bool InJson(tensorflow::DataType dtype);

/// Appends the shape of nested lists, as their first elements have it, to `dims`.
/// \return INVALID_ARGUMENT if they are nested deeper than a tensor can be.
absl::Status AppendDims(const TensorSpec& spec, JsonElement element, Dims* dims);

/// Makes the tensor of an input.
/// \param most  the most values that the request can hold; a larger shape is refused.
absl::Status MakeTensor(const TensorSpec& spec, std::string_view protocol, const Dims& dims, size_t most,
                        FeedArena* arena, tensorflow::TensorShape* shape, tensorflow::Tensor* dst);

/// Fills a tensor in the order of its elements. The decoder of a request owns it; one thread uses it.
class JsonFiller {
 public:
  /// `base64`: whether {"b64": "..."} is a string.
  JsonFiller(const TensorSpec& spec, const JsonDocument& document, bool base64, tensorflow::Tensor* dst);

  /// Reads nested lists of exactly the shape dims[0], dims[1], ...
  /// \return INVALID_ARGUMENT with the name of the input and what was found.
  absl::Status FillNested(JsonElement element, const int64_t* dims, int rank);
  /// Reads lists that are nested in any way.
  absl::Status FillFlat(JsonElement element);

  int64_t filled() const { return filled_; }

 private:
  template <typename T>
  absl::Status FillAs(JsonElement element);
  absl::Status ReadString(JsonElement element, tensorflow::tstring* dst) const;
  absl::Status FillList(JsonArray array);
  absl::Status FillOne(JsonElement element);
  absl::Status WrongValue(JsonElement element) const;
  absl::Status Precision(JsonElement element) const;
  absl::Status TooMany() const;

  const TensorSpec& spec_;
  const JsonDocument& document_;
  const bool base64_;
  void* const data_;
  const int64_t count_;
  int64_t filled_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_JSON_VALUES_H_
