// SPDX-License-Identifier: Apache-2.0
// RecEmbeddingTable and RecInitializeEmbeddingTable: a resource that is a table, and the op that maps, copies or opens its
// file.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/tables/embedding_table.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::DtypeAndPartialTensorShape;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::PartialTensorShape;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;

// Kernels that look rows up learn the size of their columns here, before there is a table.
absl::Status InferTableShape(InferenceContext* c) {
  int64_t dim;
  if (absl::Status s = c->GetAttr("dim", &dim); !s.ok()) return s;
  c->set_output(0, c->Scalar());
  c->set_output_handle_shapes_and_types(0, {{c->MakeShape({c->UnknownDim(), c->MakeDim(dim)}), tensorflow::DT_FLOAT}});
  return absl::OkStatus();
}

absl::Status InferNothing(InferenceContext* c) {
  tensorflow::shape_inference::ShapeHandle unused;
  for (int input : {0, 1}) {
    if (absl::Status s = c->WithRank(c->input(input), 0, &unused); !s.ok()) return s;
  }
  return absl::OkStatus();
}

REGISTER_OP("RecEmbeddingTable")
    .Output("table: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("dim: int >= 1")
    .SetIsStateful()
    .SetShapeFn(InferTableShape)
    .Doc(R"doc(
An immutable embedding table in a memory-mapped file, empty until RecInitializeEmbeddingTable has run.

container: container of the resource.
shared_name: name of the resource; by default that of the node. Tables of equal name in one resource manager are one.
dim: elements of a row.
table: handle of the table.
)doc");

REGISTER_OP("RecInitializeEmbeddingTable")
    .Input("table: resource")
    .Input("filename: string")
    .Attr("tiered: bool = false")
    .Attr("cache_share: float = 0")
    .Attr("resident: bool = false")
    .Attr("share_folder: string = ''")
    .SetIsStateful()
    .SetShapeFn(InferNothing)
    .Doc(R"doc(
Maps the file of a table, after it has been checked as a whole, or shares the mapping that the process has of it. Of a
tiered table only the index is read and checked.

table: handle of the table; what it held before is replaced.
filename: scalar, path of the file (docs/table_format.md).
tiered: keeps the index in memory and reads rows from the file when they are needed, instead of mapping it. Whoever serves a
  graph sets it.
cache_share: memory of the cache of a tiered table, as a share of the bytes of its rows.
resident: copies the file to memory, which processes share.
share_folder: folder in which processes find the memory of resident tables; by default one of the user.
)doc");

class EmbeddingTableOp : public OpKernel {
 public:
  explicit EmbeddingTableOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string container, name;
    int64_t dim = 0;
    OP_REQUIRES_OK(context, context->GetAttr("container", &container));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &name));
    OP_REQUIRES_OK(context, context->GetAttr("dim", &dim));
    OP_REQUIRES(context, context->resource_manager() != nullptr,
                absl::InternalError(absl::StrCat("table '", this->name(), "': the device has no resources")));
    AllocatorAttributes on_host;
    on_host.set_on_host(true);
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_RESOURCE, TensorShape({}), &handle_, on_host));
    const std::vector<DtypeAndPartialTensorShape> rows = {{tensorflow::DT_FLOAT, PartialTensorShape({-1, dim})}};
    handle_.scalar<ResourceHandle>()() = tensorflow::MakeResourceHandle<EmbeddingTableResource>(
        context, container, name.empty() ? this->name() : name, rows);
  }

  void Compute(OpKernelContext* context) override { context->set_output(0, handle_); }
  bool IsExpensive() override { return false; }
  // The same in every step, so that an executor need not run the kernel.
  const Tensor* const_tensor() const override { return &handle_; }

 private:
  Tensor handle_;
};

// Replaces the table that the handle refers to.
absl::Status Replace(OpKernelContext* context, const ResourceHandle& handle,
                     std::shared_ptr<const EmbeddingTable> table) {
  tensorflow::core::RefCountPtr<EmbeddingTableResource> found;
  absl::Status status = tensorflow::LookupResource(context, handle, &found);
  // Initialized again with what it is: requests that run meanwhile shall not find it missing.
  if (status.ok() && found->shared_table() == table) return absl::OkStatus();
  // A handle of something else, which the manager would not take over: nor would it give back its reference.
  if (!status.ok() && status.code() != absl::StatusCode::kNotFound) return status;
  tensorflow::core::RefCountPtr<EmbeddingTableResource> created(new EmbeddingTableResource(std::move(table)));
  for (;;) {
    status = tensorflow::DeleteResource(context, handle);
    if (!status.ok() && status.code() != absl::StatusCode::kNotFound) return status;
    created->Ref();  // the manager's, also if it refuses
    status = tensorflow::CreateResource(context, handle, created.get());
    // Another initializer of the same table was faster: the last one counts.
    if (status.code() != absl::StatusCode::kAlreadyExists) return status;
  }
}

class InitializeEmbeddingTableOp : public OpKernel {
 public:
  explicit InitializeEmbeddingTableOp(OpKernelConstruction* context) : OpKernel(context) {
    float share = 0;
    OP_REQUIRES_OK(context, context->GetAttr("tiered", &storage_.tiered));
    OP_REQUIRES_OK(context, context->GetAttr("cache_share", &share));
    storage_.cache_share = share;
    OP_REQUIRES_OK(context, context->GetAttr("resident", &storage_.resident));
    OP_REQUIRES_OK(context, context->GetAttr("share_folder", &storage_.share_folder));
  }

  void Compute(OpKernelContext* context) override {
    ResourceHandle handle;
    OP_REQUIRES_OK(context, tensorflow::HandleFromInput(context, 0, &handle));
    const Tensor& filename = context->input(1);
    OP_REQUIRES(context, tensorflow::TensorShapeUtils::IsScalar(filename.shape()),
                absl::InvalidArgumentError(absl::StrCat("table '", handle.name(), "': filename has shape ",
                                                        filename.shape().DebugString(), ", expected a scalar")));
    std::shared_ptr<const EmbeddingTable> table;
    OP_REQUIRES_OK(context,
                   EmbeddingTable::Open(std::string(filename.scalar<tensorflow::tstring>()()), storage_, &table));
    const std::vector<DtypeAndPartialTensorShape>& rows = handle.dtypes_and_shapes();
    if (rows.size() == 1 && rows[0].shape.dims() == 2) {
      const int64_t dim = rows[0].shape.dim_size(1);
      OP_REQUIRES(context, dim == static_cast<int64_t>(table->dim()),
                  absl::InvalidArgumentError(absl::StrCat("table '", table->path(), "': rows of ", table->dim(),
                                                          ", expected ", dim, " for '", handle.name(),
                                                          "'; the file belongs to another model")));
    }
    OP_REQUIRES_OK(context, Replace(context, handle, std::move(table)));
  }

 private:
  TableStorage storage_;
};

REGISTER_KERNEL_BUILDER(Name("RecEmbeddingTable").Device(tensorflow::DEVICE_CPU), EmbeddingTableOp);
REGISTER_KERNEL_BUILDER(Name("RecInitializeEmbeddingTable").Device(tensorflow::DEVICE_CPU), InitializeEmbeddingTableOp);

}  // namespace
}  // namespace processor
