// SPDX-License-Identifier: Apache-2.0
// Finds the row numbers that the lookups of a request read.
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

/// An array that only grows, and loses its contents when it does.
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

/// The row numbers of a block of the batch, and the memory to find them, which is kept for the next block. One thread uses
/// it.
class EmbeddingRows {
 public:
  /// Finds the rows of all lookups for rows [begin, end) of the batch.
  /// \return INVALID_ARGUMENT for an absent key if the table refuses these.
  absl::Status Find(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps, const EmbeddingBinding& binding,
                    const EmbeddingRequest& request, int64_t begin, int64_t end);

  /// Returns the rows of a lookup, one for each value of its key in the block; kNoRow for an ignored value.
  uint32_t* of(int lookup) { return lookups_[lookup]; }

  size_t bytes() const {
    return numbers_.bytes() + strings_.bytes() + none_.bytes() + rows_.bytes() + shared_.bytes() + shared_none_.bytes();
  }

 private:
  // The values of a key in the block.
  struct KeyBlock {
    size_t n;
    const int64_t* numbers;
    const tensorflow::tstring* strings;  // or null: `numbers` count
    const uint8_t* none;                 // 1 for each ignored value; null if there is none
  };

  void MakeKeys(absl::Span<const KeySteps> steps, const EmbeddingRequest& request, int64_t begin, int64_t end);

  std::vector<KeyBlock> keys_;
  std::vector<uint32_t*> lookups_;
  GrowingArray<int64_t> numbers_;
  GrowingArray<tensorflow::tstring> strings_;
  GrowingArray<uint8_t> none_;
  GrowingArray<uint32_t> rows_;
  // Numbers of one key after the steps that the next key has as well.
  GrowingArray<int64_t> shared_;
  GrowingArray<uint8_t> shared_none_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_ROWS_H_
