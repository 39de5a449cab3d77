// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/precision.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace processor {

bool HasInt8(const CpuFeatures& cpu) { return cpu.isa == Isa::kAvx512 && cpu.avx512_vnni; }

absl::Status ChoosePrecision(std::string_view attribute, const CpuFeatures& cpu, Precision* precision) {
  if (attribute == "fp32" || attribute == "auto") {
    *precision = Precision::kFloat32;
    return absl::OkStatus();
  }
  if (attribute == "int8") {
    if (!HasInt8(cpu)) {
      return absl::FailedPreconditionError("precision: int8 on a CPU without AVX512_VNNI, expected bf16, fp32 or auto");
    }
    *precision = Precision::kInt8;
    return absl::OkStatus();
  }
  if (attribute != "bf16" && attribute != "bf16_weights") {
    return absl::InvalidArgumentError(absl::StrCat("precision: '", absl::Utf8SafeCHexEscape(attribute),
                                                   "', expected auto, fp32, bf16, bf16_weights or int8"));
  }
  if (cpu.isa == Isa::kPlain) {
    return absl::FailedPreconditionError("precision: bf16 on a CPU without AVX2, expected fp32 or auto");
  }
  const bool fast = attribute == "bf16" && (cpu.amx_bf16 || (cpu.avx512_bf16 && cpu.amd));
  *precision = fast ? Precision::kBfloat16 : Precision::kBfloat16Weights;
  return absl::OkStatus();
}

std::vector<std::string> SupportedPrecisions(const CpuFeatures& cpu) {
  std::vector<std::string> found;
  Precision ignored = Precision::kFloat32;
  for (const char* name : {"fp32", "bf16", "int8"}) {
    if (ChoosePrecision(name, cpu, &ignored).ok()) found.emplace_back(name);
  }
  return found;
}

const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kBfloat16:
      return "bf16";
    case Precision::kBfloat16Weights:
      return "bf16 weights";
    case Precision::kInt8:
      return "int8";
    case Precision::kFloat32:
      break;
  }
  return "fp32";
}

}  // namespace processor
