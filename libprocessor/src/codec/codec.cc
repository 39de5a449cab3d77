// SPDX-License-Identifier: Apache-2.0
#include "src/codec/codec.h"

#include <algorithm>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/codec/input_places.h"
#include "src/codec/message_text.h"
#include "src/codec/predict_codec.h"

namespace processor {
namespace {

constexpr size_t kMaxNames = 10;
constexpr size_t kMaxPrintable = 128;

/// "a, b, c" or "a, b, ... 37 more".
template <typename Items, typename Name>
std::string List(const Items& items, Name&& name) {
  std::string text;
  size_t count = 0;
  for (const auto& item : items) {
    if (count == kMaxNames) {
      absl::StrAppend(&text, ", ... ", items.size() - count, " more");
      break;
    }
    absl::StrAppend(&text, count == 0 ? "" : ", ", name(item));
    ++count;
  }
  return text.empty() ? "none" : text;
}

std::string Aliases(const std::vector<TensorSpec>& specs) {
  return List(specs, [](const TensorSpec& spec) -> const std::string& { return spec.alias; });
}

std::string DimsText(const Dims& dims) {
  const size_t shown = std::min<size_t>(dims.size(), kMaxNames);
  return absl::StrCat("[", absl::StrJoin(dims.begin(), dims.begin() + shown, ","), shown < dims.size() ? ",...]" : "]");
}

}  // namespace

std::string Printable(std::string_view name) {
  if (name.size() <= kMaxPrintable) return absl::CHexEscape(name);
  return absl::StrCat(absl::CHexEscape(name.substr(0, kMaxPrintable)), "...");
}

std::string DtypeName(tensorflow::DataType dtype) {
  if (tensorflow::DataType_IsValid(dtype)) return tensorflow::DataType_Name(dtype);
  return absl::StrCat("number ", static_cast<int>(dtype));
}

absl::Status MalformedInput(const TensorSpec& spec) {
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec.alias, "': malformed or truncated bytes, expected a tensor"));
}

absl::Status NotInProtocol(std::string_view kind, std::string_view name, tensorflow::DataType dtype,
                           std::string_view protocol) {
  return absl::UnimplementedError(absl::StrCat(kind, " '", name, "': dtype ", DtypeName(dtype),
                                               ", expected one that protocol '", protocol, "' has"));
}

absl::Status BuildShape(const TensorSpec& spec, const Dims& dims, tensorflow::TensorShape* dst) {
  if (dims.size() > tensorflow::TensorShape::MaxDimensions()) {
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': shape of ", dims.size(),
                                                   " dimensions, expected at most ",
                                                   tensorflow::TensorShape::MaxDimensions()));
  }
  if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", spec.alias, "': shape ", DimsText(dims), ", expected no negative dimension"));
  }
  // What a shape has on the heap, as those with a dimension of 2^32 do, is not freed when another is built in its place.
  *dst = tensorflow::TensorShape();
  if (tensorflow::TensorShape::BuildTensorShape(dims, dst).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec.alias, "': shape ", DimsText(dims), ", expected fewer than 2^63 elements"));
}

absl::Status MakeInput(const TensorSpec& spec, const tensorflow::TensorShape& shape, size_t element_bytes, size_t text,
                       FeedArena* arena, tensorflow::Tensor* dst) {
  absl::Status status = arena->Make(spec.dtype, shape, element_bytes, dst, text);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("input '", spec.alias, "': ", status.message()));
}

absl::Status SelectSignature(const SignatureSet& signatures, std::string_view name, DecodedRequest* dst,
                             absl::StatusCode unknown) {
  dst->signature = signatures.Find(name);
  if (dst->signature != nullptr) return absl::OkStatus();
  const std::string known = List(signatures.all(), [](const auto& s) -> const std::string& { return s->name(); });
  if (name.empty()) {
    return {unknown, absl::StrCat("signature: none named and the model has no default (has ", known, ")")};
  }
  return {unknown, absl::StrCat("signature '", Printable(name), "': not in the model (has ", known, ")")};
}

absl::Status UnknownInput(const Signature& signature, std::string_view key) {
  return absl::InvalidArgumentError(absl::StrCat("input '", Printable(key), "': not in signature '", signature.name(),
                                                 "' (has ", Aliases(signature.inputs()), ")"));
}

absl::Status PlaceInput(const Signature& signature, const NamedInput& input, SeenInputs* seen,
                        absl::InlinedVector<NamedInput, 64>* inputs) {
  const int position = signature.FindInput(input.key);
  if (position < 0) return UnknownInput(signature, input.key);
  NamedInput& place = (*inputs)[position];
  if ((*seen)[position] && place.key != input.key) {
    return absl::InvalidArgumentError(absl::StrCat("input '", signature.inputs()[position].alias, "': given as '",
                                                   place.key, "' and as '", input.key, "', expected one of them"));
  }
  (*seen)[position] = true;
  place = input;
  return absl::OkStatus();
}

absl::Status InputPlaces::Take(std::string_view key, int* position) {
  *position = signature_.FindInput(key);
  if (*position < 0) return UnknownInput(signature_, key);
  if (seen_[*position]) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", signature_.inputs()[*position].alias, "': given twice, expected once"));
  }
  seen_[*position] = true;
  return absl::OkStatus();
}

absl::Status CheckDtype(const TensorSpec& spec, tensorflow::DataType dtype) {
  if (spec.dtype == dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec.alias, "': dtype ", DtypeName(dtype), ", expected ", DtypeName(spec.dtype)));
}

absl::Status CheckShape(const TensorSpec& spec, const tensorflow::TensorShape& shape) {
  if (spec.shape.IsCompatibleWith(shape)) {
    if (!spec.open_rows || shape.dims() == 0 || shape.dim_size(0) <= spec.max_rows) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': ", shape.dim_size(0),
                                                   " rows, expected at most ", spec.max_rows, " (max_rows)"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec.alias, "': shape ", shape.DebugString(), ", expected ", spec.shape.DebugString()));
}

absl::Status FinishRequest(absl::Span<const bool> seen, absl::Span<const std::string_view> output_keys,
                           DecodedRequest* dst) {
  return FinishRequestBy({}, seen, output_keys, dst);
}

absl::Status FinishRequestBy(const OutputRule& rule, absl::Span<const bool> seen,
                             absl::Span<const std::string_view> output_keys, DecodedRequest* dst) {
  const Signature& signature = *dst->signature;
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i]) continue;
    const TensorSpec& spec = signature.inputs()[i];
    if (!spec.default_value.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': missing"));
    }
    dst->feeds[i] = *spec.default_value;  // kernels write into no tensor that others hold
  }
  const std::vector<TensorSpec>& outputs = signature.outputs();
  dst->fetches.clear();
  dst->fetch_keys.clear();
  if (output_keys.empty()) {
    for (size_t i = 0; i < outputs.size(); ++i) dst->fetches.push_back(static_cast<int>(i));
    return absl::OkStatus();
  }
  absl::InlinedVector<bool, 64> wanted(outputs.size());
  for (const std::string_view key : output_keys) {
    const int position = signature.FindOutput(key);
    if (position < 0) {
      return {rule.unknown, absl::StrCat("output '", Printable(key), "': not in signature '", signature.name(),
                                         "' (has ", Aliases(outputs), ")")};
    }
    if (wanted[position]) {
      if (!rule.once) continue;
      return absl::InvalidArgumentError(absl::StrCat("output '", Printable(key), "': named twice, expected once"));
    }
    wanted[position] = true;
    dst->fetches.push_back(position);
    dst->fetch_keys.push_back(key);
  }
  return absl::OkStatus();
}

absl::Status MakeRoom(size_t size, Buffer* dst) {
  if (size > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::ResourceExhaustedError(absl::StrCat("response: ", size, " bytes, expected at most 2147483647"));
  }
  constexpr size_t kLeastClaim = 4096;
  ByteClaim claim(ByteBudget::Use::kAnswer);
  if (size >= kLeastClaim) {
    if (absl::Status s = claim.Add("response", size); !s.ok()) return s;
  }
  if (!dst->Allocate(size)) {
    return absl::ResourceExhaustedError(absl::StrCat("response: no memory for ", size, " bytes"));
  }
  dst->Keep(std::move(claim));
  return absl::OkStatus();
}

}  // namespace processor
