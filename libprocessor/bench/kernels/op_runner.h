// SPDX-License-Identifier: Apache-2.0
// Runs one TensorFlow kernel over and over, as an executor does, without a graph around it.
#ifndef PROCESSOR_BENCH_KERNELS_OP_RUNNER_H_
#define PROCESSOR_BENCH_KERNELS_OP_RUNNER_H_

#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor::bench {

class OpRunner {
 public:
  /// Throws std::runtime_error if there is no such kernel, here and below.
  explicit OpRunner(const tensorflow::NodeDef& node);
  ~OpRunner();

  /// A handle of a resource that the kernel will find. Takes over the reference.
  template <class T>
  tensorflow::Tensor AddResource(const std::string& name, T* resource) {
    tensorflow::ResourceMgr* resources = device_->resource_manager();
    const std::string& container = resources->default_container();
    tensorflow::Tensor handle(tensorflow::DT_RESOURCE, tensorflow::TensorShape({}));
    handle.scalar<tensorflow::ResourceHandle>()() =
        tensorflow::MakeResourceHandle(container, name, *device_, tensorflow::TypeIndex::Make<T>());
    Check(resources->Create(container, name, resource));
    return handle;
  }

  /// Runs the kernel. Outputs are valid until the next run.
  void Run(const std::vector<tensorflow::Tensor>& inputs);
  const tensorflow::Tensor& output(int number) const { return outputs_[number]; }

 private:
  static void Check(const absl::Status& status);

  std::unique_ptr<tensorflow::Device> device_;
  std::unique_ptr<tensorflow::OpKernel> kernel_;
  std::vector<tensorflow::TensorValue> values_;
  std::vector<tensorflow::Tensor> outputs_;
};

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_OP_RUNNER_H_
