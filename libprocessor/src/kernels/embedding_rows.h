// SPDX-License-Identifier: Apache-2.0
// From the values of a request to the numbers of rows that its lookups read.
#ifndef PROCESSOR_KERNELS_EMBEDDING_ROWS_H_
#define PROCESSOR_KERNELS_EMBEDDING_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/embedding_binding.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/embedding_request.h"
#include "src/kernels/key_steps.h"
#include "tensorflow/core/platform/tstring.h"

namespace processor {

/// An array whose size only grows; what is in it is lost when it does.
template <typename T>
class GrowingArray {
 public:
  T* Get(size_t size) {
    if (size > size_) {
      data_.reset(new T[size]);
      size_ = size;
    }
    return data_.get();
  }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_ = 0;
};

/// The numbers of rows for a block of the batch, and the memory to find them, which stays from one block to the next.
class EmbeddingRows {
 public:
  /// Finds the rows of all lookups for rows [begin, end) of the batch.
  /// \return INVALID_ARGUMENT for a key that a table does not hold and refuses.
  absl::Status Find(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps, const EmbeddingBinding& binding,
                    const EmbeddingRequest& request, int64_t begin, int64_t end);

  /// The rows of a lookup, one for each value of its key in the block; kNoRow for a value that counts as none.
  uint32_t* of(int lookup) { return lookups_[lookup]; }

  size_t bytes() const { return numbers_.bytes() + strings_.bytes() + none_.bytes() + rows_.bytes(); }

 private:
  // The values of a key in the block.
  struct KeyBlock {
    size_t n;
    const int64_t* numbers;
    const tensorflow::tstring* strings;  // or null: `numbers` count
    const uint8_t* none;                 // or null: no value counts as none
  };

  void MakeKeys(absl::Span<const KeySteps> steps, const EmbeddingRequest& request, int64_t begin, int64_t end);

  std::vector<KeyBlock> keys_;
  std::vector<uint32_t*> lookups_;
  GrowingArray<int64_t> numbers_;
  GrowingArray<tensorflow::tstring> strings_;
  GrowingArray<uint8_t> none_;
  GrowingArray<uint32_t> rows_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_ROWS_H_
