// SPDX-License-Identifier: Apache-2.0
#include "src/ops/table_list.h"

#include "absl/strings/str_cat.h"
#include "src/ops/key_input.h"
#include "tensorflow/core/platform/threadpool.h"

namespace elastic_training {
namespace {

// Fewer keys are not worth waking threads.
constexpr int64_t kKeysForThreads = 2048;

}  // namespace

absl::Status TableList::Read(tensorflow::OpKernelConstruction* context) {
  std::vector<std::string> names;
  if (absl::Status s = context->GetAttr("N", &count); !s.ok()) return s;
  if (absl::Status s = context->GetAttr("combiners", &names); !s.ok()) return s;
  if (absl::Status s = context->GetAttr("mask_zero", &mask_zero); !s.ok()) return s;
  std::vector<tensorflow::DataType> types;
  if (absl::Status s = context->GetAttr("Tkeys", &types); !s.ok()) return s;
  for (const size_t size : {names.size(), mask_zero.size(), types.size()}) {
    if (size == static_cast<size_t>(count)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("combiners, mask_zero or Tkeys has ", size, " elements, expected N = ", count));
  }
  combiners.resize(count);
  for (int i = 0; i < count; ++i) {
    if (absl::Status s = ReadCombiner(names[i], &combiners[i]); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status RunForTables(tensorflow::OpKernelContext* context, int count, int64_t keys,
                          const std::function<absl::Status(int)>& job) {
  std::vector<absl::Status> statuses(count);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) statuses[i] = job(static_cast<int>(i));
  };
  if (count > 1 && keys >= kKeysForThreads) {
    tensorflow::thread::ThreadPool* workers = context->device()->tensorflow_cpu_worker_threads()->workers;
    workers->ParallelFor(count, tensorflow::thread::ThreadPool::SchedulingParams::Fixed(1), run);
  } else {
    run(0, count);
  }
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status InferLookupShapes(tensorflow::shape_inference::InferenceContext* c) {
  int count;
  std::vector<std::string> combiners;
  std::vector<int64_t> dims;
  if (absl::Status s = c->GetAttr("N", &count); !s.ok()) return s;
  if (absl::Status s = c->GetAttr("combiners", &combiners); !s.ok()) return s;
  if (absl::Status s = c->GetAttr("dims", &dims); !s.ok()) return s;
  for (int i = 0; i < count; ++i) {
    const auto keys = c->NumElements(c->input(count + i));
    auto rows = keys;
    if (i < combiners.size() && combiners[i] != "none") {
      const auto splits = c->NumElements(c->input(2 * count + i));
      rows = c->UnknownDim();
      if (c->ValueKnown(splits) && c->Value(splits) > 0) rows = c->MakeDim(c->Value(splits) - 1);
    }
    c->set_output(i, c->MakeShape({rows, i < dims.size() ? c->MakeDim(dims[i]) : c->UnknownDim()}));
    c->set_output(count + i, c->MakeShape({c->UnknownDim()}));
    c->set_output(2 * count + i, c->MakeShape({c->UnknownDim()}));
  }
  return absl::OkStatus();
}

}  // namespace elastic_training
