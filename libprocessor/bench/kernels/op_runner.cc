// SPDX-License-Identifier: Apache-2.0
#include "kernels/op_runner.h"

#include <stdexcept>

#include "tensorflow/core/framework/device_factory.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorflow/core/public/version.h"

namespace processor::bench {

void OpRunner::Check(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

OpRunner::OpRunner(const tensorflow::NodeDef& node) {
  tensorflow::SessionOptions options;
  options.config.set_intra_op_parallelism_threads(1);
  device_ = tensorflow::DeviceFactory::NewDevice("CPU", options, "/job:localhost/replica:0/task:0");
  if (device_ == nullptr) throw std::runtime_error("no CPU device");
  const tensorflow::OpDef* op = nullptr;
  Check(tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op));
  tensorflow::NodeDef complete = node;
  tensorflow::AddDefaultsToNodeDef(*op, &complete);
  absl::Status status;
  kernel_ = tensorflow::CreateOpKernel(tensorflow::DEVICE_CPU, device_.get(),
                                       device_->GetAllocator(tensorflow::AllocatorAttributes()), complete,
                                       TF_GRAPH_DEF_VERSION, &status);
  Check(status);
  outputs_.resize(kernel_->num_outputs());
}

OpRunner::~OpRunner() = default;

void OpRunner::Run(const std::vector<tensorflow::Tensor>& inputs) {
  values_.clear();
  for (const tensorflow::Tensor& input : inputs) values_.emplace_back(const_cast<tensorflow::Tensor*>(&input));
  static const tensorflow::AllocatorAttributes kPlain;
  const std::vector<tensorflow::AllocatorAttributes> attributes(outputs_.size(), kPlain);
  tensorflow::OpKernelContext::Params params;
  params.device = device_.get();
  params.op_kernel = kernel_.get();
  params.resource_manager = device_->resource_manager();
  params.inputs = values_;
  params.output_attr_array = attributes.data();
  tensorflow::OpKernelContext context(&params, static_cast<int>(outputs_.size()));
  kernel_->Compute(&context);
  Check(context.status());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const tensorflow::TensorValue value = context.release_output(static_cast<int>(i));
    outputs_[i] = std::move(*value.tensor);
    delete value.tensor;
  }
}

}  // namespace processor::bench
