// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/tensor_view.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/codec/codec.h"
#include "src/codec/predict_codec.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/types.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// The memory of the caller as a tensor's buffer. TensorFlow never writes into memory that it does not own.
class BorrowedBuffer : public tensorflow::TensorBuffer {
 public:
  BorrowedBuffer(const void *data, size_t size) : TensorBuffer(const_cast<void *>(data)), size_(size) {}
  size_t size() const override { return size_; }
  TensorBuffer *root_buffer() override { return this; }
  bool OwnsMemory() const override { return false; }
  void FillAllocationDescription(tensorflow::AllocationDescription *proto) const override {
    proto->set_requested_bytes(static_cast<int64_t>(size_));
  }

 private:
  const size_t size_;
};

absl::Status WrongTensor(const TensorSpec &spec, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': ", what));
}

absl::Status ReadShape(const processor_tensor &src, const TensorSpec &spec, TensorShape *shape) {
  if (src.rank < 0 || src.rank > TensorShape::MaxDimensions()) {
    return WrongTensor(spec, absl::StrCat("rank ", src.rank, ", expected 0 to ", TensorShape::MaxDimensions()));
  }
  if (src.rank > 0 && src.dims == nullptr) return WrongTensor(spec, "dims NULL, expected [rank]");
  for (int i = 0; i < src.rank; ++i) {
    if (src.dims[i] < 0)
      return WrongTensor(spec, absl::StrCat("dimension ", i, " is ", src.dims[i], ", expected 0 or more"));
    // AddDim would abort the process when the number of elements overflows.
    if (!shape->AddDimWithStatus(src.dims[i]).ok()) {
      return WrongTensor(spec, absl::StrCat("dimension ", i, " is ", src.dims[i], ", which makes too many elements"));
    }
  }
  return CheckShape(spec, *shape);
}

absl::Status ReadNumbers(const processor_tensor &src, const TensorSpec &spec, const TensorShape &shape, bool may_borrow,
                         FeedArena *arena, Tensor *dst) {
  const int64_t item = tensorflow::DataTypeSize(spec.dtype);
  if (item == 0)
    return WrongTensor(spec, absl::StrCat("dtype ", tensorflow::DataType_Name(spec.dtype), " is no dense one"));
  const int64_t elements = shape.num_elements();
  if (elements > INT64_MAX / item || src.size != static_cast<size_t>(elements * item)) {
    return WrongTensor(
        spec, absl::StrCat(src.size, " bytes for shape ", shape.DebugString(), ", expected ", elements, " x ", item));
  }
  if (src.size > 0 && src.data == nullptr) return WrongTensor(spec, "data NULL");
  // Reading a bool that is neither 0 nor 1 is undefined behavior.
  if (spec.dtype == tensorflow::DT_BOOL) {
    const auto *bytes = static_cast<const unsigned char *>(src.data);
    for (size_t i = 0; i < src.size; ++i) {
      if (bytes[i] > 1)
        return WrongTensor(spec, absl::StrCat("byte ", i, " is ", bytes[i], ", expected a bool, 0 or 1"));
    }
  }
  if (may_borrow && src.size > 0 && reinterpret_cast<uintptr_t>(src.data) % EIGEN_MAX_ALIGN_BYTES == 0) {
    auto *buffer = new BorrowedBuffer(src.data, src.size);
    *dst = Tensor(spec.dtype, shape, buffer);
    buffer->Unref();
    return absl::OkStatus();
  }
  if (absl::Status s = MakeInput(spec, shape, static_cast<size_t>(item), 0, arena, dst); !s.ok()) return s;
  if (src.size > 0) std::memcpy(const_cast<char *>(dst->tensor_data().data()), src.data, src.size);
  return absl::OkStatus();
}

absl::Status ReadViewedStrings(const processor_tensor &src, const TensorSpec &spec, const TensorShape &shape,
                               FeedArena *arena, Tensor *dst) {
  const int64_t elements = shape.num_elements();
  const char *bytes = static_cast<const char *>(src.data);
  if (bytes == nullptr && src.size > 0) return WrongTensor(spec, "data NULL");
  if (src.offsets == nullptr) {
    // A fixed width of 0 is NumPy's "S0": all strings are empty.
    if (src.item_size == 0
            ? src.size != 0
            : src.size / src.item_size != static_cast<size_t>(elements) || src.size % src.item_size != 0) {
      return WrongTensor(spec, absl::StrCat(src.size, " bytes for shape ", shape.DebugString(), ", expected ", elements,
                                            " x item_size ", src.item_size, ", or offsets"));
    }
    // The request must be as large as the elements that it describes; without bytes, their number is limited.
    if (src.item_size == 0 && elements > (1 << 24)) return WrongTensor(spec, "too many elements without bytes");
    absl::Status s = MakeInput(spec, shape, sizeof(tensorflow::tstring), src.size, arena, dst);
    if (!s.ok()) return s;
    auto flat = dst->flat<tensorflow::tstring>();
    for (int64_t i = 0; i < elements && src.item_size > 0; ++i) {
      const char *item = bytes + i * src.item_size;
      size_t size = src.item_size;
      while (size > 0 && item[size - 1] == '\0') --size;
      flat(i).assign(item, size);
    }
    return absl::OkStatus();
  }
  if (src.offsets[0] < 0) return WrongTensor(spec, "offsets begin below 0");
  for (int64_t i = 0; i < elements; ++i) {
    if (src.offsets[i + 1] < src.offsets[i]) return WrongTensor(spec, absl::StrCat("offsets fall at element ", i));
  }
  if (static_cast<uint64_t>(src.offsets[elements]) > src.size) {
    return WrongTensor(spec,
                       absl::StrCat("offsets end at ", src.offsets[elements], ", expected at most size, ", src.size));
  }
  const auto size = static_cast<size_t>(src.offsets[elements] - src.offsets[0]);
  if (absl::Status s = MakeInput(spec, shape, sizeof(tensorflow::tstring), size, arena, dst); !s.ok()) return s;
  auto flat = dst->flat<tensorflow::tstring>();
  for (int64_t i = 0; i < elements; ++i) flat(i).assign(bytes + src.offsets[i], src.offsets[i + 1] - src.offsets[i]);
  return absl::OkStatus();
}

}  // namespace

absl::Status ToTensor(const processor_tensor &src, const TensorSpec &spec, bool may_borrow, FeedArena *arena,
                      Tensor *dst) {
  if (absl::Status s = CheckDtype(spec, static_cast<tensorflow::DataType>(src.dtype)); !s.ok()) return s;
  TensorShape shape;
  if (absl::Status s = ReadShape(src, spec, &shape); !s.ok()) return s;
  if (spec.dtype == tensorflow::DT_STRING) return ReadViewedStrings(src, spec, shape, arena, dst);
  return ReadNumbers(src, spec, shape, may_borrow, arena, dst);
}

TensorView::TensorView(std::string name, Tensor tensor) : name_(std::move(name)), tensor_(std::move(tensor)) {
  for (int i = 0; i < tensor_.dims(); ++i) dims_.push_back(tensor_.dim_size(i));
  if (tensor_.dtype() != tensorflow::DT_STRING) return;
  const auto flat = tensor_.flat<tensorflow::tstring>();
  offsets_.reserve(flat.size() + 1);
  offsets_.push_back(0);
  for (int64_t i = 0; i < flat.size(); ++i) {
    bytes_.append(flat(i).data(), flat(i).size());
    offsets_.push_back(static_cast<int64_t>(bytes_.size()));
  }
}

processor_tensor TensorView::Show() const {
  processor_tensor view{};
  view.dtype = tensor_.dtype();
  view.name = name_.c_str();
  view.dims = dims_.empty() ? nullptr : dims_.data();
  view.rank = static_cast<int32_t>(dims_.size());
  if (tensor_.dtype() == tensorflow::DT_STRING) {
    view.data = bytes_.data();
    view.size = bytes_.size();
    view.offsets = offsets_.data();
  } else {
    view.data = tensor_.tensor_data().data();
    view.size = tensor_.tensor_data().size();
  }
  return view;
}

}  // namespace processor
