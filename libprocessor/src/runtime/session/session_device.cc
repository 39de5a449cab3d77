// SPDX-License-Identifier: Apache-2.0
#define EIGEN_USE_THREADS  // before any header that includes Eigen: it declares ThreadPoolDevice

#include "src/runtime/session/session_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/threads/pinned_pool.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace processor {

namespace {

tensorflow::thread::ThreadPoolInterface* CallingThread() {
  static auto* const pool = new PinnedPool("caller", 1, CpuSet());
  return pool;
}

// The cancellation of a kernel's step. Loop conditions and waiting kernels check it, executors between kernels do not.
bool IsCancelled(const tensorflow::OpKernelContext& context) {
  tensorflow::CancellationManager* const manager = context.cancellation_manager();
  return __builtin_expect(manager != nullptr && manager->IsCancelled(), false);
}

absl::Status Cancelled() { return absl::CancelledError("step: cancelled"); }

}  // namespace

SessionDevice::SessionDevice(tensorflow::Device* base, tensorflow::thread::ThreadPoolInterface* intra_op_pool,
                             tensorflow::thread::ThreadPoolInterface* inter_op_pool)
    : Device(tensorflow::Env::Default(), base->attributes()),
      base_(base),
      pool_(intra_op_pool),
      inter_op_pool_(inter_op_pool == nullptr ? CallingThread() : inter_op_pool) {
  workers_.workers = &pool_;
  workers_.num_threads = pool_.NumThreads();
  set_tensorflow_cpu_worker_threads(&workers_);
  set_tensorflow_device_thread_pool(&inter_op_pool_);
  eigen_device_ = std::make_unique<Eigen::ThreadPoolDevice>(pool_.AsEigenThreadPool(), pool_.NumThreads(), nullptr);
  set_eigen_cpu_device(eigen_device_.get());
}

SessionDevice::~SessionDevice() = default;

tensorflow::Allocator* SessionDevice::GetAllocator(tensorflow::AllocatorAttributes) {
  return allocator_.load(std::memory_order_relaxed);
}

void SessionDevice::Compute(tensorflow::OpKernel* kernel, tensorflow::OpKernelContext* context) {
  if (IsCancelled(*context)) return context->SetStatus(Cancelled());
  kernel->Compute(context);
}

void SessionDevice::ComputeAsync(tensorflow::AsyncOpKernel* kernel, tensorflow::OpKernelContext* context,
                                 tensorflow::AsyncOpKernel::DoneCallback done) {
  if (IsCancelled(*context)) {
    context->SetStatus(Cancelled());
    return done();
  }
  kernel->ComputeAsync(context, std::move(done));
}

absl::Status SessionDevice::MakeTensorFromProto(const tensorflow::TensorProto& proto,
                                                const tensorflow::AllocatorAttributes attributes,
                                                tensorflow::Tensor* tensor) {
  if (proto.dtype() == tensorflow::DT_INVALID || !tensorflow::DataType_IsValid(proto.dtype())) {
    return absl::InvalidArgumentError(absl::StrCat("constant: dtype ", static_cast<int>(proto.dtype()), " unknown"));
  }
  // Not the base device's allocator: constants shall lie where the other memory of the version lies.
  tensorflow::Tensor parsed(proto.dtype());
  if (!parsed.FromProto(GetAllocator(attributes), proto)) {
    return absl::InvalidArgumentError(
        absl::StrCat("constant of dtype ", tensorflow::DataTypeString(proto.dtype()),
                     ": its values do not fit its shape, or there is no memory for them"));
  }
  *tensor = std::move(parsed);
  return absl::OkStatus();
}

void SessionDevice::CopyTensorInSameDevice(const tensorflow::Tensor* src, tensorflow::Tensor* dst,
                                           const tensorflow::DeviceContext* context, tensorflow::StatusCallback done) {
  base_->CopyTensorInSameDevice(src, dst, context, std::move(done));
}

}  // namespace processor
