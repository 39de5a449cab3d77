// SPDX-License-Identifier: Apache-2.0
// A cut over tables as a resource of TensorFlow.
#ifndef ELASTIC_TRAINING_OPS_CUT_RESOURCE_H_
#define ELASTIC_TRAINING_OPS_CUT_RESOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/cut/model_reader.h"
#include "src/ops/table_resource.h"

namespace elastic_training {

class CutResource : public tensorflow::ResourceBase {
 public:
  CutResource(std::vector<TablePointer> tables, std::unique_ptr<ModelReader> cut)
      : tables_(std::move(tables)), cut(std::move(cut)) {}

  std::string DebugString() const override { return "cut of elastic tables"; }

 private:
  // They outlive the cut.
  const std::vector<TablePointer> tables_;

 public:
  const std::unique_ptr<ModelReader> cut;
};

using CutPointer = tensorflow::core::RefCountPtr<CutResource>;

/// Runs what may throw; its messages name the table.
template <typename Body>
absl::Status Attempt(const Body& body) {
  try {
    body();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("cut: no memory");
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(error.what());
  }
}

/// Begins a cut of the tables that are inputs 0 to count - 1: `make(tables)` returns it. Output 0 becomes its handle, which
/// owns it. Returns null, and sets the status, if it could not begin.
template <typename Make>
ModelReader* BeginCut(tensorflow::OpKernelContext* context, int count, const Make& make) {
  std::vector<TablePointer> tables(count);
  std::vector<ElasticTable*> pointers;
  absl::Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    status = FindTable(context, i, &tables[i]);
    if (status.ok()) pointers.push_back(&tables[i]->table);
  }
  tensorflow::Tensor* output = nullptr;
  if (status.ok()) status = context->allocate_output(0, tensorflow::TensorShape({}), &output);
  CutResource* cut = nullptr;
  if (status.ok()) status = Attempt([&] { cut = new CutResource(std::move(tables), make(pointers)); });
  if (!status.ok()) {
    context->SetStatus(status);
    return nullptr;
  }
  output->scalar<tensorflow::ResourceHandle>()() =
      tensorflow::ResourceHandle::MakeRefCountingHandle(cut, context->device()->name());
  return cut->cut.get();
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPS_CUT_RESOURCE_H_
