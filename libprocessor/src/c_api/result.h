// SPDX-License-Identifier: Apache-2.0
// The result of a request, which the caller owns: bytes or tensors, and how the request was run.
#ifndef PROCESSOR_C_API_RESULT_H_
#define PROCESSOR_C_API_RESULT_H_

#include <memory>
#include <new>
#include <string_view>
#include <vector>

#include "processor/processor.h"
#include "src/base/memory_block.h"
#include "src/c_api/tensor_view.h"
#include "src/codec/buffer.h"
#include "src/host/requests/route_table.h"
#include "src/runtime/stats/stats.h"

struct processor_result {
  // Its memory is one of the blocks that threads keep.
  static void *operator new(size_t size) {
    if (void *memory = processor::NewBlock(size)) return memory;
    throw std::bad_alloc();
  }
  static void operator delete(void *memory) { processor::FreeBlock(memory); }

  bool holds_bytes = false;
  processor::Buffer bytes;
  std::vector<processor::TensorView> tensors;
  processor::RequestTiming timing;
  // Of requests to a host:
  std::shared_ptr<const processor::AnswerTexts> texts;
  const char *arm = nullptr;
  int64_t retry_after_us = 0;
  size_t header_length = 0;
};

namespace processor {

/// Makes a result that holds a text, for the functions that return JSON.
std::unique_ptr<processor_result> TextResult(std::string_view text);

}  // namespace processor

#endif  // PROCESSOR_C_API_RESULT_H_
