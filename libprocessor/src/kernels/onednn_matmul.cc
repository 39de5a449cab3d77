// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/onednn_matmul.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/kept_objects.h"
#include "src/kernels/one_omp_thread.h"

namespace processor {
namespace {

using dnnl::memory;

const dnnl::engine& Engine() {
  // Never destroyed: models may outlive static objects.
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

memory::data_type TypeOf(PanelType type) {
  return type == PanelType::kFloat32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// oneDNN takes no const; it does not write to what it reads.
void* Unconst(const void* data) { return const_cast<void*>(data); }

void Append(const Activation& activation, dnnl::post_ops* ops) {
  using dnnl::algorithm;
  const float alpha = activation.alpha;
  switch (activation.kind) {
    case ActivationKind::kRelu:
      return ops->append_eltwise(algorithm::eltwise_relu, 0, 0);
    case ActivationKind::kRelu6:
      return ops->append_eltwise(algorithm::eltwise_clip_v2, 0, 6);
    case ActivationKind::kLeakyRelu:
      return ops->append_eltwise(algorithm::eltwise_relu, alpha, 0);
    case ActivationKind::kElu:
      return ops->append_eltwise(algorithm::eltwise_elu, 1, 0);
    case ActivationKind::kSelu:
      ops->append_eltwise(algorithm::eltwise_elu, static_cast<float>(kSeluAlpha), 0);
      return ops->append_eltwise(algorithm::eltwise_linear, static_cast<float>(kSeluScale), 0);
    case ActivationKind::kSigmoid:
      return ops->append_eltwise(algorithm::eltwise_logistic, 0, 0);
    case ActivationKind::kTanh:
      return ops->append_eltwise(algorithm::eltwise_tanh, 0, 0);
    case ActivationKind::kGelu:
      return ops->append_eltwise(algorithm::eltwise_gelu_erf, 0, 0);
    case ActivationKind::kGeluTanh:
      return ops->append_eltwise(algorithm::eltwise_gelu_tanh, 0, 0);
    case ActivationKind::kSwish:
      return ops->append_eltwise(algorithm::eltwise_swish, 1, 0);
    case ActivationKind::kSoftplus:
      return ops->append_eltwise(algorithm::eltwise_soft_relu, 1, 0);
    default:
      return;
  }
}

absl::Status Refusal(const dnnl::error& error) {
  return absl::InternalError(absl::StrCat("oneDNN: ", error.message, " (status ", static_cast<int>(error.status), ")"));
}

}  // namespace

// What one run needs besides the kernel; kept, so that runs allocate nothing of ours.
struct OnednnMatmul::Slot {
  memory src, weights, bias, dst, scratch;
  HugeMemory scratch_bytes;
  std::vector<dnnl_exec_arg_t> arguments;
};

struct OnednnMatmul::Kernel {
  Call call;  // what it was made for; of its pointers only whether there is a bias
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
  KeptObjects<Slot> slots;
  Kernel* next = nullptr;  // in the list of kernels for as many rows

  bool Fits(const Call& other) const {
    return call.rows == other.rows && call.src_stride == other.src_stride && call.dst_stride == other.dst_stride &&
           call.accumulate == other.accumulate && call.activate == other.activate &&
           call.dst_bfloat16 == other.dst_bfloat16 && (call.bias == nullptr) == (other.bias == nullptr);
  }

  std::unique_ptr<Slot> Take(void* weights) {
    if (std::unique_ptr<Slot> slot = slots.TakeIfAny()) return slot;
    auto slot = std::make_unique<Slot>();
    slot->src = memory(desc.src_desc(), Engine(), nullptr);
    slot->weights = memory(desc.weights_desc(), Engine(), weights);
    if (call.bias != nullptr) slot->bias = memory(desc.bias_desc(), Engine(), nullptr);
    slot->dst = memory(desc.dst_desc(), Engine(), nullptr);
    slot->scratch_bytes = HugeMemory(desc.scratchpad_desc().get_size());
    slot->scratch = memory(desc.scratchpad_desc(), Engine(), slot->scratch_bytes.data());
    slot->arguments = {{DNNL_ARG_SRC, slot->src.get()},
                       {DNNL_ARG_WEIGHTS, slot->weights.get()},
                       {DNNL_ARG_DST, slot->dst.get()},
                       {DNNL_ARG_SCRATCHPAD, slot->scratch.get()}};
    if (call.bias != nullptr) slot->arguments.push_back({DNNL_ARG_BIAS, slot->bias.get()});
    return slot;
  }
};

bool OnednnMatmul::CanApply(const Activation& activation) {
  switch (activation.kind) {
    case ActivationKind::kRelu:
    case ActivationKind::kRelu6:
      // Here a NaN becomes 0.
      return activation.onednn;
    case ActivationKind::kGelu:
      // Here an infinity becomes a NaN.
      return false;
    case ActivationKind::kSoftmax:
    case ActivationKind::kPrelu:
    case ActivationKind::kDice:
      return false;
    default:
      return true;
  }
}

OnednnMatmul::OnednnMatmul(const PanelShape& shape, const Activation& activation)
    : shape_(shape), activation_(activation) {}

OnednnMatmul::~OnednnMatmul() {
  for (std::atomic<Kernel*>& first : kernels_) {
    for (Kernel* kernel = first.load(); kernel != nullptr;) delete std::exchange(kernel, kernel->next);
  }
}

dnnl::matmul::primitive_desc OnednnMatmul::Describe(const Call& call, const memory::desc& weights) const {
  using Type = memory::data_type;
  const memory::desc src({call.rows, shape_.k}, TypeOf(shape_.type), memory::dims{call.src_stride, 1});
  const memory::desc dst({call.rows, shape_.n}, call.dst_bfloat16 ? Type::bf16 : Type::f32,
                         memory::dims{call.dst_stride, 1});
  dnnl::post_ops ops;
  if (call.accumulate) ops.append_sum();
  if (call.activate) Append(activation_, &ops);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (call.bias == nullptr) return dnnl::matmul::primitive_desc(Engine(), src, weights, dst, attributes);
  const memory::desc bias({1, shape_.n}, Type::f32, memory::format_tag::ab);
  return dnnl::matmul::primitive_desc(Engine(), src, weights, bias, dst, attributes);
}

absl::Status OnednnMatmul::Create(const float* weights, bool transposed, const PanelShape& shape, const void* panels,
                                  const Activation& activation, std::unique_ptr<OnednnMatmul>* matmul) try {
  using Tag = memory::format_tag;
  const OneOmpThread one_thread;
  std::unique_ptr<OnednnMatmul> made(new OnednnMatmul(shape, activation));
  const memory::dims dims = {shape.k, shape.n};
  Call call;
  call.rows = kMaxRows;
  call.src_stride = shape.k;
  call.dst_stride = shape.n;
  // Of all numbers of rows the largest decides; oneDNN takes that form for the others too.
  made->weights_desc_ = made->Describe(call, memory::desc(dims, TypeOf(shape.type), Tag::any)).weights_desc();
  const memory::desc packed(dims, TypeOf(shape.type),
                            shape.type == PanelType::kFloat32 ? Tag::BA16a64b : Tag::BA16a64b2a);
  if (panels != nullptr && made->weights_desc_ == packed) {
    made->weights_ = Unconst(panels);
  } else {
    const memory plain(memory::desc(dims, memory::data_type::f32, transposed ? Tag::ba : Tag::ab), Engine(),
                       Unconst(weights));
    made->packed_ = HugeMemory(made->weights_desc_.get_size());
    made->weights_ = made->packed_.data();
    memory dst(made->weights_desc_, Engine(), made->weights_);
    dnnl::stream stream(Engine());
    dnnl::reorder(plain, dst).execute(stream, const_cast<memory&>(plain), dst);
    stream.wait();
  }
  *matmul = std::move(made);
  return absl::OkStatus();
} catch (const dnnl::error& error) {
  return Refusal(error);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory to pack weights in");
}

OnednnMatmul::Kernel* OnednnMatmul::FindMade(const Call& call) const {
  Kernel* kernel = kernels_[call.rows / kRowUnit - 1].load(std::memory_order_acquire);
  while (kernel != nullptr && !kernel->Fits(call)) kernel = kernel->next;
  return kernel;
}

OnednnMatmul::Kernel* OnednnMatmul::Find(const Call& call) const {
  if (Kernel* kernel = FindMade(call)) return kernel;
  std::lock_guard<std::mutex> lock(mutex_);
  if (Kernel* kernel = FindMade(call)) return kernel;
  auto kernel = std::make_unique<Kernel>();
  kernel->call = call;
  kernel->desc = Describe(call, weights_desc_);
  kernel->primitive = dnnl::matmul(kernel->desc);
  std::atomic<Kernel*>& first = kernels_[call.rows / kRowUnit - 1];
  kernel->next = first.load(std::memory_order_relaxed);
  first.store(kernel.get(), std::memory_order_release);
  return kernel.release();
}

absl::Status OnednnMatmul::Prepare(const Call& call) const try {
  const OneOmpThread one_thread;
  if (FindMade(call) != nullptr) return absl::OkStatus();
  Kernel* kernel = Find(call);
  kernel->slots.Keep(kernel->Take(weights_));
  return absl::OkStatus();
} catch (const dnnl::error& error) {
  return Refusal(error);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory for the kernels of a product");
}

bool OnednnMatmul::IsReference(const Call& call) const {
  return std::string_view(Describe(call, weights_desc_).impl_info_str()).substr(0, 3) == "ref";
}

absl::Status OnednnMatmul::Run(const Call& call) const try {
  const OneOmpThread one_thread;
  thread_local dnnl::stream stream(Engine());
  Kernel* kernel = Find(call);
  std::unique_ptr<Slot> slot = kernel->Take(weights_);
  slot->src.set_data_handle(Unconst(call.src));
  if (call.bias != nullptr) slot->bias.set_data_handle(Unconst(call.bias));
  slot->dst.set_data_handle(call.dst);
  const dnnl_status_t status = dnnl_primitive_execute(kernel->primitive.get(), stream.get(),
                                                      static_cast<int>(slot->arguments.size()), slot->arguments.data());
  kernel->slots.Keep(std::move(slot));
  if (status != dnnl_success) {
    return absl::InternalError(absl::StrCat("oneDNN: a product failed (status ", static_cast<int>(status), ")"));
  }
  return absl::OkStatus();
} catch (const dnnl::error& error) {
  return Refusal(error);
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory for a product");
}

}  // namespace processor
