// SPDX-License-Identifier: Apache-2.0
// The ops of live models: a model whose rows and weights change while it is served, epoch by epoch.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/live/live_model.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace processor {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::core::RefCountPtr;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status InferScalar(InferenceContext* c) {
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

absl::Status InferVariableShape(InferenceContext* c) {
  tensorflow::PartialTensorShape partial;
  if (absl::Status s = c->GetAttr("shape", &partial); !s.ok()) return s;
  ShapeHandle shape;
  if (absl::Status s = c->MakeShapeFromPartialTensorShape(partial, &shape); !s.ok()) return s;
  c->set_output(0, shape);
  return absl::OkStatus();
}

REGISTER_OP("RecLiveModel")
    .Output("live: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .SetIsStateful()
    .SetShapeFn(InferScalar)
    .Doc(R"doc(
A model whose tables and weights follow a timeline of deltas, empty until RecInitializeLiveModel has run.

container: container of the resource.
shared_name: name of the resource; by default that of the node.
live: handle of the live model.
)doc");

REGISTER_OP("RecInitializeLiveModel")
    .Input("live: resource")
    .Input("tables: num_tables * resource")
    .Input("description: string")
    .Input("formulas: string")
    .Attr("num_tables: int >= 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Reads the description of a live model, which is at epoch 0 then. It runs after the initializers of the tables.

live: handle of the live model; a model that is initialized already stays as it is.
tables: handles of RecEmbeddingTable, initialized, in the order of the description.
description: scalar, path of live.json.
formulas: scalar, path of formulas.pb, a GraphDef.
)doc");

REGISTER_OP("RecPinView")
    .Input("live: resource")
    .Output("view: variant")
    .SetIsStateful()
    .SetShapeFn(InferScalar)
    .Doc(R"doc(
The newest epoch of a live model. Ops that take the same view read the same epoch, which is kept as long as the tensor.

live: handle of the live model, initialized.
view: scalar.
)doc");

REGISTER_OP("RecViewVariable")
    .Input("view: variant")
    .Output("value: float")
    .Attr("variable: string")
    .Attr("shape: shape")
    .SetShapeFn(InferVariableShape)
    .Doc(R"doc(
The value of a formula, or of a source variable, at the epoch of a view.

view: output of RecPinView.
variable: name of a formula or, if there is none, of a source variable.
shape: shape of the value; a value with another shape is refused.
)doc");

REGISTER_OP("RecApplySegments")
    .Input("live: resource")
    .Input("filenames: string")
    .Output("epoch: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) -> absl::Status {
      ShapeHandle unused;
      if (absl::Status s = c->WithRank(c->input(1), 1, &unused); !s.ok()) return s;
      return InferScalar(c);
    })
    .Doc(R"doc(
Applies segments of deltas to a live model, one after the other. The first one that does not fit ends it with an error.

live: handle of the live model, initialized.
filenames: paths of segments, in the order of their epochs.
epoch: scalar, the epoch of the model afterwards.
)doc");

absl::Status LookupLiveModel(OpKernelContext* context, RefCountPtr<LiveModel>* model) {
  ResourceHandle handle;
  if (absl::Status s = tensorflow::HandleFromInput(context, 0, &handle); !s.ok()) return s;
  absl::Status status = tensorflow::LookupResource(context, handle, model);
  if (status.code() != absl::StatusCode::kNotFound) return status;
  return absl::FailedPreconditionError(absl::StrCat("live model '", handle.name(),
                                                    "': not initialized, expected RecInitializeLiveModel to have run, ",
                                                    "as the initializer of the model does"));
}

absl::Status ReadPath(OpKernelContext* context, int input, std::string* path) {
  const Tensor& tensor = context->input(input);
  if (!tensorflow::TensorShapeUtils::IsScalar(tensor.shape())) {
    return absl::InvalidArgumentError(
        absl::StrCat("path: shape ", tensor.shape().DebugString(), ", expected a scalar"));
  }
  *path = std::string(tensor.scalar<tensorflow::tstring>()());
  return absl::OkStatus();
}

class LiveModelOp : public OpKernel {
 public:
  explicit LiveModelOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string container, name;
    OP_REQUIRES_OK(context, context->GetAttr("container", &container));
    OP_REQUIRES_OK(context, context->GetAttr("shared_name", &name));
    OP_REQUIRES(context, context->resource_manager() != nullptr,
                absl::InternalError(absl::StrCat("live model '", this->name(), "': the device has no resources")));
    tensorflow::AllocatorAttributes on_host;
    on_host.set_on_host(true);
    OP_REQUIRES_OK(context, context->allocate_temp(tensorflow::DT_RESOURCE, {}, &handle_, on_host));
    handle_.scalar<ResourceHandle>()() =
        tensorflow::MakeResourceHandle<LiveModel>(context, container, name.empty() ? this->name() : name);
  }

  void Compute(OpKernelContext* context) override { context->set_output(0, handle_); }
  bool IsExpensive() override { return false; }
  // The same in every step, so that an executor need not run the kernel.
  const Tensor* const_tensor() const override { return &handle_; }

 private:
  Tensor handle_;
};

class InitializeLiveModelOp : public OpKernel {
 public:
  explicit InitializeLiveModelOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("num_tables", &num_tables_));
  }

  void Compute(OpKernelContext* context) override {
    ResourceHandle handle;
    OP_REQUIRES_OK(context, tensorflow::HandleFromInput(context, 0, &handle));
    RefCountPtr<LiveModel> found;
    absl::Status status = tensorflow::LookupResource(context, handle, &found);
    if (status.ok()) return;
    OP_REQUIRES(context, status.code() == absl::StatusCode::kNotFound, status);
    RefCountPtr<LiveModel> made;
    OP_REQUIRES_OK(context, Make(context, &made));
    status = tensorflow::CreateResource(context, handle, made.release());
    // Another initializer of the same model was faster.
    OP_REQUIRES(context, status.ok() || status.code() == absl::StatusCode::kAlreadyExists, status);
  }

 private:
  absl::Status Make(OpKernelContext* context, RefCountPtr<LiveModel>* made) const {
    std::vector<std::shared_ptr<const EmbeddingTable>> tables;
    std::vector<std::string> names;
    for (int i = 0; i < num_tables_; ++i) {
      ResourceHandle handle;
      RefCountPtr<EmbeddingTableResource> table;
      if (absl::Status s = tensorflow::HandleFromInput(context, 1 + i, &handle); !s.ok()) return s;
      if (absl::Status s = LookupEmbeddingTable(context, 1 + i, &table); !s.ok()) return s;
      tables.push_back(table->shared_table());
      names.push_back(TableResourceName(handle));
    }
    std::string path, formulas_path;
    if (absl::Status s = ReadPath(context, 1 + num_tables_, &path); !s.ok()) return s;
    if (absl::Status s = ReadPath(context, 2 + num_tables_, &formulas_path); !s.ok()) return s;
    LiveDescription description;
    if (absl::Status s = ReadLiveDescription(path, &description); !s.ok()) return s;
    std::unique_ptr<FormulaGraph> formulas;
    absl::Status opened =
        FormulaGraph::Open(formulas_path, description.formulas.size(), description.variables.size(), &formulas);
    if (!opened.ok()) return opened;
    return LiveModel::Create(std::move(description), std::move(tables), names, std::move(formulas), made);
  }

  int num_tables_ = 0;
};

class PinViewOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    RefCountPtr<LiveModel> model;
    OP_REQUIRES_OK(context, LookupLiveModel(context, &model));
    context->set_output(0, model->Pin());
  }
  bool IsExpensive() override { return false; }
};

class ViewVariableOp : public OpKernel {
 public:
  explicit ViewVariableOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("variable", &variable_));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
  }

  void Compute(OpKernelContext* context) override {
    const EpochView* view = nullptr;
    OP_REQUIRES_OK(context, ReadViewTensor(context->input(0), &view));
    const LiveDescription& description = view->parts().description;
    const int formula = description.FormulaOf(variable_);
    const int number = formula >= 0 ? formula : description.VariableOf(variable_);
    OP_REQUIRES(context, number >= 0,
                absl::InvalidArgumentError(absl::StrCat("variable '", variable_,
                                                        "': not in the live model, expected a formula or a variable")));
    const Tensor* value = formula >= 0 ? view->formula(number) : view->variable(number);
    if (value == nullptr) {
      OP_REQUIRES_OK(context, view->parts().formulas->AtFirstEpoch(formula >= 0, number, &value));
    }
    OP_REQUIRES(
        context, shape_.IsCompatibleWith(value->shape()),
        absl::InvalidArgumentError(absl::StrCat("variable '", variable_, "': shape ", value->shape().DebugString(),
                                                ", expected ", shape_.DebugString())));
    context->set_output(0, *value);
  }
  bool IsExpensive() override { return false; }

 private:
  std::string variable_;
  tensorflow::PartialTensorShape shape_;
};

class ApplySegmentsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    RefCountPtr<LiveModel> model;
    OP_REQUIRES_OK(context, LookupLiveModel(context, &model));
    const auto paths = context->input(1).flat<tensorflow::tstring>();
    for (int64_t i = 0; i < paths.size(); ++i) {
      std::unique_ptr<const DeltaSegment> segment;
      OP_REQUIRES_OK(context, DeltaSegment::Open(std::string(paths(i)), &segment));
      OP_REQUIRES_OK(context, model->Apply(*segment));
    }
    Tensor* epoch = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &epoch));
    epoch->scalar<int64_t>()() = static_cast<int64_t>(model->status().newest.epoch);
  }
};

REGISTER_KERNEL_BUILDER(Name("RecLiveModel").Device(tensorflow::DEVICE_CPU), LiveModelOp);
REGISTER_KERNEL_BUILDER(Name("RecInitializeLiveModel").Device(tensorflow::DEVICE_CPU), InitializeLiveModelOp);
REGISTER_KERNEL_BUILDER(Name("RecPinView").Device(tensorflow::DEVICE_CPU), PinViewOp);
REGISTER_KERNEL_BUILDER(Name("RecViewVariable").Device(tensorflow::DEVICE_CPU), ViewVariableOp);
REGISTER_KERNEL_BUILDER(Name("RecApplySegments").Device(tensorflow::DEVICE_CPU), ApplySegmentsOp);

}  // namespace
}  // namespace processor
