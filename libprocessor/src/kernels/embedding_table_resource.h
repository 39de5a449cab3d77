// SPDX-License-Identifier: Apache-2.0
// An embedding table as a TensorFlow resource, to which the output of RecEmbeddingTable refers.
#ifndef PROCESSOR_KERNELS_EMBEDDING_TABLE_RESOURCE_H_
#define PROCESSOR_KERNELS_EMBEDDING_TABLE_RESOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/tables/embedding_table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_base.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace processor {

/// Owns a share of the table; all resources of the process that were initialized with its file share it. Any thread may
/// read.
class EmbeddingTableResource : public tensorflow::ResourceBase {
 public:
  explicit EmbeddingTableResource(std::shared_ptr<const EmbeddingTable> table) : table_(std::move(table)) {}

  const EmbeddingTable& table() const { return *table_; }
  const std::shared_ptr<const EmbeddingTable>& shared_table() const { return table_; }

  std::string DebugString() const override {
    return absl::StrCat("embedding table '", table_->path(), "': ", table_->rows(), " rows of ", table_->dim());
  }
  /// Returns its own memory only, because all resources share the pages of the file.
  int64_t MemoryUsed() const override { return sizeof(*this); }

 private:
  const std::shared_ptr<const EmbeddingTable> table_;
};

/// Returns the name by which a live model knows a table.
inline std::string TableResourceName(const tensorflow::ResourceHandle& handle) {
  return absl::StrCat(handle.container(), "/", handle.name());
}

/// Finds the table to which an input of a kernel refers. The reference keeps the table mapped.
/// \return FAILED_PRECONDITION if it has not been initialized; INVALID_ARGUMENT if the input is not a table.
inline absl::Status LookupEmbeddingTable(tensorflow::OpKernelContext* context, int input,
                                         tensorflow::core::RefCountPtr<EmbeddingTableResource>* resource) {
  tensorflow::ResourceHandle handle;
  if (absl::Status s = tensorflow::HandleFromInput(context, input, &handle); !s.ok()) return s;
  absl::Status status = tensorflow::LookupResource(context, handle, resource);
  if (status.code() != absl::StatusCode::kNotFound) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "table '", handle.name(), "': not initialized, expected RecInitializeEmbeddingTable to have run, as ",
      "the initializer of the model does"));
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_EMBEDDING_TABLE_RESOURCE_H_
