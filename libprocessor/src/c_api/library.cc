// SPDX-License-Identifier: Apache-2.0
// The modern ABI's functions that concern the library as a whole.
#include <cstring>
#include <string>

#include "nlohmann/json.hpp"
#include "oneapi/dnnl/dnnl.h"
#include "processor/processor.h"
#include "src/base/json_text.h"
#include "src/base/log.h"
#include "src/c_api/boundary.h"
#include "src/codec/protocols.h"
#include "src/kernels/precision.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/cpuset.h"
#include "tensorflow/c/c_api.h"

namespace {

const char *IsaName(dnnl_cpu_isa_t isa) {
  switch (isa) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
      return "AVX2";
    case dnnl_cpu_isa_avx2_vnni:
      return "AVX2_VNNI";
    case dnnl_cpu_isa_avx2_vnni_2:
      return "AVX2_VNNI_2";
    case dnnl_cpu_isa_avx512_core:
      return "AVX512_CORE";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl_cpu_isa_avx512_core_fp16:
      return "AVX512_CORE_FP16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return "other";
  }
}

std::string BuildInfo() {
  const dnnl_version_t *onednn = dnnl_version();
  nlohmann::ordered_json info;
  info["version"] = PROCESSOR_VERSION;
  info["abi_version"] = absl::StrCat(PROCESSOR_ABI_VERSION >> 16, ".", PROCESSOR_ABI_VERSION & 0xFFFF);
  info["tensorflow"] = {{"built", PROCESSOR_TENSORFLOW_VERSION}, {"running", TF_Version()}};
  info["onednn"] = {{"version", absl::StrCat(onednn->major, ".", onednn->minor, ".", onednn->patch)},
                    {"isa", IsaName(dnnl_get_effective_cpu_isa())}};
  info["precisions"] = processor::SupportedPrecisions();
  info["cpus"] = processor::FormatCpuset(processor::AllowedCpus());
  info["protocols"] = processor::Protocols();
  return processor::JsonText(info);
}

}  // namespace

extern "C" {

const char *processor_version(void) { return PROCESSOR_VERSION; }

const char *processor_build_info(void) {
  static const std::string *info = new std::string(BuildInfo());
  return info->c_str();
}

size_t processor_sizeof(const char *struct_name) {
  if (struct_name == nullptr) return 0;
  const struct {
    const char *name;
    size_t size;
  } sizes[] = {
      {"processor_error", sizeof(processor_error)},
      {"processor_load_options", sizeof(processor_load_options)},
      {"processor_tensor", sizeof(processor_tensor)},
      {"processor_request", sizeof(processor_request)},
      {"processor_result_info", sizeof(processor_result_info)},
      {"processor_completion", sizeof(processor_completion)},
      {"processor_host_options", sizeof(processor_host_options)},
      {"processor_host_request", sizeof(processor_host_request)},
      {"processor_pair", sizeof(processor_pair)},
      {"processor_target", sizeof(processor_target)},
  };
  for (const auto &entry : sizes) {
    if (std::strcmp(entry.name, struct_name) == 0) return entry.size;
  }
  return 0;
}

const char *processor_status_name(processor_status code) {
  static const char *const names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code < 0 || code > PROCESSOR_UNAUTHENTICATED ? names[PROCESSOR_UNKNOWN] : names[code];
}

void processor_set_log_sink(processor_log_fn sink, void *user_data, int32_t min_severity) {
  processor::SetLogSink(sink, user_data, min_severity);
}

int64_t processor_now_us(void) { return processor::NowNs() / 1000; }

}  // extern "C"
