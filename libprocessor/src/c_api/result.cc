// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/result.h"

#include <algorithm>
#include <new>

#include "src/c_api/boundary.h"

namespace processor {

std::unique_ptr<processor_result> TextResult(std::string_view text) {
  auto result = std::make_unique<processor_result>();
  result->holds_bytes = true;
  if (!result->bytes.Assign(text)) throw std::bad_alloc();
  return result;
}

}  // namespace processor

extern "C" {

processor_status processor_result_bytes(const processor_result *result, const void **data, size_t *size) {
  if (result == nullptr || data == nullptr || size == nullptr) return PROCESSOR_INVALID_ARGUMENT;
  if (!result->holds_bytes) return PROCESSOR_FAILED_PRECONDITION;
  *data = result->bytes.data();
  *size = result->bytes.size();
  return PROCESSOR_OK;
}

size_t processor_result_num_tensors(const processor_result *result) {
  return result == nullptr ? 0 : result->tensors.size();
}

processor_status processor_result_tensor(const processor_result *result, size_t index, processor_tensor *tensor) {
  if (result == nullptr || tensor == nullptr) return PROCESSOR_INVALID_ARGUMENT;
  if (index >= result->tensors.size()) return PROCESSOR_OUT_OF_RANGE;
  processor::WriteStruct(result->tensors[index].Show(), tensor);
  return PROCESSOR_OK;
}

processor_status processor_result_get_info(const processor_result *result, processor_result_info *info) {
  if (result == nullptr || info == nullptr) return PROCESSOR_INVALID_ARGUMENT;
  const processor::RequestTiming &timing = result->timing;
  processor_result_info answer{};
  answer.session = timing.session;
  answer.model_version = timing.model_version;
  answer.generation = timing.generation;
  answer.queue_ns = timing.queue_ns;
  answer.decode_ns = timing.decode_ns;
  answer.run_ns = timing.run_ns;
  answer.encode_ns = timing.encode_ns;
  answer.total_ns = timing.total_ns;
  answer.batch_rows = timing.batch_rows;
  answer.epoch = timing.epoch;
  answer.age_us = timing.knows_us == 0 ? -1 : std::max<int64_t>(processor::UnixUs() - timing.knows_us, 0);
  answer.arm = result->arm;
  answer.retry_after_us = result->retry_after_us;
  answer.header_length = result->header_length;
  if (result->texts != nullptr) {
    const auto &cpusets = result->texts->cpusets;
    answer.model_name = result->texts->model.c_str();
    const bool ran = timing.session >= 0 && static_cast<size_t>(timing.session) < cpusets.size();
    if (ran) answer.cpuset = cpusets[static_cast<size_t>(timing.session)].c_str();
  }
  processor::WriteStruct(answer, info);
  return PROCESSOR_OK;
}

void processor_result_free(processor_result *result) { delete result; }

}  // extern "C"
