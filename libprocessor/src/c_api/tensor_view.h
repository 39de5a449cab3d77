// SPDX-License-Identifier: Apache-2.0
// Converts tensors of the C ABI to those of TensorFlow and back, without copying where that is safe.
#ifndef PROCESSOR_C_API_TENSOR_VIEW_H_
#define PROCESSOR_C_API_TENSOR_VIEW_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "processor/processor.h"
#include "src/base/signature.h"
#include "src/codec/feed_arena.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Makes a tensor from memory that the caller lends.
/// `may_borrow`: numbers whose address is a multiple of 64 are used where they lie. They must stay there until the
/// tensor, and everything that shares its memory, is destroyed.
/// \return INVALID_ARGUMENT, naming the input, for a dtype or shape that is not the signature's or a size that is not
///         the shape's; as FeedArena::Make() for what is copied.
absl::Status ToTensor(const processor_tensor &src, const TensorSpec &spec, bool may_borrow, FeedArena *arena,
                      tensorflow::Tensor *dst);

/// Owns an output, which a processor_tensor shows.
class TensorView {
 public:
  TensorView(std::string name, tensorflow::Tensor tensor);
  TensorView(TensorView &&) = default;
  TensorView &operator=(TensorView &&) = default;

  /// Returns the tensor. Its pointers live as long as the view.
  processor_tensor Show() const;

 private:
  std::string name_;
  tensorflow::Tensor tensor_;
  std::vector<int64_t> dims_;
  // Strings, end to end.
  std::string bytes_;
  std::vector<int64_t> offsets_;
};

}  // namespace processor

#endif  // PROCESSOR_C_API_TENSOR_VIEW_H_
