// SPDX-License-Identifier: Apache-2.0
// ModelConfig and ModelStatistics, which Triton's clients ask for, as messages and as JSON.
#include <functional>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/codec/description_parts.h"
#include "src/codec/kserve_tensors.h"
#include "src/codec/message_builder.h"
#include "src/codec/message_text.h"

namespace processor {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kBackend = "tensorflow";
constexpr int kKindCpu = 2;

/// Fields of ModelConfig and what is in it.
constexpr uint32_t kResponseConfig = 1;
constexpr uint32_t kConfigName = 1;
constexpr uint32_t kConfigPlatform = 2;
constexpr uint32_t kConfigVersionPolicy = 3;
constexpr uint32_t kConfigMaxBatchSize = 4;
constexpr uint32_t kConfigInput = 5;
constexpr uint32_t kConfigOutput = 6;
constexpr uint32_t kConfigInstanceGroup = 7;
constexpr uint32_t kConfigDynamicBatching = 11;
constexpr uint32_t kConfigBackend = 17;
constexpr uint32_t kPolicySpecific = 3;
constexpr uint32_t kSpecificVersions = 1;
constexpr uint32_t kTensorName = 1;
constexpr uint32_t kTensorDataType = 2;
constexpr uint32_t kInputDims = 4;
constexpr uint32_t kOutputDims = 3;
constexpr uint32_t kGroupName = 1;
constexpr uint32_t kGroupCount = 2;
constexpr uint32_t kGroupKind = 4;
constexpr uint32_t kBatchingDelay = 2;

/// Fields of ModelStatistics.
constexpr uint32_t kResponseStats = 1;
constexpr uint32_t kStatsName = 1;
constexpr uint32_t kStatsVersion = 2;
constexpr uint32_t kStatsLastInference = 3;
constexpr uint32_t kStatsInferenceCount = 4;
constexpr uint32_t kStatsExecutionCount = 5;
constexpr uint32_t kStatsInference = 6;
constexpr uint32_t kDurationCount = 1;
constexpr uint32_t kDurationNs = 2;

struct ConfigType {
  int number;
  const char* name;
};

/// Triton's DataType of a datatype.
ConfigType TypeOf(std::string_view datatype) {
  constexpr std::pair<std::string_view, ConfigType> kTypes[] = {
      {"BOOL", {1, "TYPE_BOOL"}},     {"UINT8", {2, "TYPE_UINT8"}},   {"UINT16", {3, "TYPE_UINT16"}},
      {"UINT32", {4, "TYPE_UINT32"}}, {"UINT64", {5, "TYPE_UINT64"}}, {"INT8", {6, "TYPE_INT8"}},
      {"INT16", {7, "TYPE_INT16"}},   {"INT32", {8, "TYPE_INT32"}},   {"INT64", {9, "TYPE_INT64"}},
      {"FP16", {10, "TYPE_FP16"}},    {"FP32", {11, "TYPE_FP32"}},    {"FP64", {12, "TYPE_FP64"}},
      {"BYTES", {13, "TYPE_STRING"}}, {"BF16", {14, "TYPE_BF16"}}};
  for (const auto& [name, type] : kTypes) {
    if (name == datatype) return type;
  }
  return {0, "TYPE_INVALID"};
}

/// What ModelConfig says of a model.
struct Config {
  const ModelView* model = nullptr;
  const VersionView* version = nullptr;
  const Signature* signature = nullptr;
  std::vector<int64_t> versions;  // that are ready
  /// The largest number of rows in a batch; 0 if requests are not batched, in which case shapes include their first
  /// dimension.
  int64_t max_batch_size = 0;
};

bool HasRows(const std::vector<TensorSpec>& specs) {
  for (const TensorSpec& spec : specs) {
    if (spec.shape.unknown_rank() || spec.shape.dims() == 0 || spec.shape.dim_size(0) >= 0) return false;
  }
  return true;
}

absl::Status FindConfig(const HostView& host, const ModelSpecView& spec, Config* dst) {
  if (absl::Status s = FindLoaded(host, spec, &dst->model, &dst->version); !s.ok()) return s;
  dst->signature = dst->version->signatures->Find(spec.signature);
  if (dst->signature == nullptr) {
    return absl::NotFoundError(absl::StrCat("model '", dst->model->name, "' version ", dst->version->number,
                                            ": no signature '", Printable(spec.signature), "'"));
  }
  for (const VersionView& other : dst->model->versions) {
    if (other.state == VersionPhase::kReady) dst->versions.push_back(other.number);
  }
  if (dst->version->batch_rows > 0 && HasRows(dst->signature->inputs()) && HasRows(dst->signature->outputs())) {
    dst->max_batch_size = dst->version->batch_rows;
  }
  return absl::OkStatus();
}

std::vector<int64_t> DimsOf(const TensorSpec& spec, bool without_rows) {
  if (spec.shape.unknown_rank()) return {-1};
  std::vector<int64_t> dims;
  for (int i = without_rows ? 1 : 0; i < spec.shape.dims(); ++i) dims.push_back(spec.shape.dim_size(i));
  return dims;
}

std::string Packed(const std::vector<int64_t>& values) {
  std::string bytes;
  for (const int64_t value : values) {
    char buffer[10];
    WireWriter writer(buffer);
    writer.Varint(static_cast<uint64_t>(value));
    bytes.append(buffer, writer.position());
  }
  return bytes;
}

std::string ConfigMessage(const Config& config) {
  MessageBuilder answer, specific, policy, group, batching;
  specific.Bytes(kSpecificVersions, Packed(config.versions));
  policy.Bytes(kPolicySpecific, specific.bytes(), true);
  answer.Bytes(kConfigName, config.model->name).Bytes(kConfigPlatform, kPlatform);
  answer.Bytes(kConfigVersionPolicy, policy.bytes());
  answer.Varint(kConfigMaxBatchSize, static_cast<uint64_t>(config.max_batch_size));
  const bool batched = config.max_batch_size > 0;
  const auto add = [&](uint32_t field, uint32_t dims, const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) {
      MessageBuilder tensor;
      tensor.Bytes(kTensorName, spec.alias);
      tensor.Varint(kTensorDataType, static_cast<uint64_t>(TypeOf(DatatypeName(spec.dtype)).number));
      tensor.Bytes(dims, Packed(DimsOf(spec, batched)));
      answer.Bytes(field, tensor.bytes());
    }
  };
  add(kConfigInput, kInputDims, config.signature->inputs());
  add(kConfigOutput, kOutputDims, config.signature->outputs());
  group.Bytes(kGroupName, config.model->name).Varint(kGroupCount, static_cast<uint64_t>(config.version->sessions));
  group.Varint(kGroupKind, kKindCpu);
  answer.Bytes(kConfigInstanceGroup, group.bytes());
  batching.Varint(kBatchingDelay, static_cast<uint64_t>(config.version->batch_wait_us));
  if (batched) answer.Bytes(kConfigDynamicBatching, batching.bytes(), true);
  return answer.Bytes(kConfigBackend, kBackend).bytes();
}

Json ConfigJson(const Config& config) {
  const bool batched = config.max_batch_size > 0;
  const auto tensors = [&](const std::vector<TensorSpec>& specs) {
    Json list = Json::array();
    for (const TensorSpec& spec : specs) {
      list.push_back({{"name", spec.alias},
                      {"data_type", TypeOf(DatatypeName(spec.dtype)).name},
                      {"dims", DimsOf(spec, batched)}});
    }
    return list;
  };
  Json json = {{"name", config.model->name},
               {"platform", kPlatform},
               {"backend", kBackend},
               {"version_policy", {{"specific", {{"versions", config.versions}}}}},
               {"max_batch_size", config.max_batch_size},
               {"input", tensors(config.signature->inputs())},
               {"output", tensors(config.signature->outputs())}};
  json["instance_group"] =
      Json::array({{{"name", config.model->name}, {"kind", "KIND_CPU"}, {"count", config.version->sessions}}});
  if (batched) json["dynamic_batching"] = {{"max_queue_delay_microseconds", config.version->batch_wait_us}};
  return json;
}

/// The parts of InferStatistics, in their order: how many and how long.
struct Duration {
  const char* name;
  uint64_t count, ns;
};

std::vector<Duration> DurationsOf(const InferenceCounts& counts) {
  return {{"success", counts.succeeded, counts.succeeded_ns},
          {"fail", counts.failed, counts.failed_ns},
          {"queue", counts.succeeded, counts.queue_ns},
          {"compute_input", counts.succeeded, counts.decode_ns},
          {"compute_infer", counts.succeeded, counts.run_ns},
          {"compute_output", counts.succeeded, counts.encode_ns},
          {"cache_hit", 0, 0},
          {"cache_miss", 0, 0}};
}

using Visit = std::function<void(const ModelView& model, const VersionView& version)>;

/// Visits the versions that a question of statistics is about: one that is named, those of a model, or all.
absl::Status VisitVersions(const HostView& host, const ModelSpecView& spec, const Visit& visit) {
  if (spec.version || !spec.label.empty()) {
    const ModelView* model = nullptr;
    const VersionView* version = nullptr;
    if (absl::Status s = FindLoaded(host, spec, &model, &version); !s.ok()) return s;
    visit(*model, *version);
    return absl::OkStatus();
  }
  const ModelView* only = nullptr;
  if (!spec.name.empty()) {
    if (absl::Status s = FindModel(host, spec, &only); !s.ok()) return s;
  }
  for (const ModelView& model : host.models) {
    if (only != nullptr && &model != only) continue;
    for (const VersionView& version : model.versions) {
      if (version.signatures != nullptr) visit(model, version);
    }
  }
  return absl::OkStatus();
}

std::string StatisticsMessage(const ModelView& model, const VersionView& version) {
  const InferenceCounts& counts = version.counts;
  MessageBuilder stats, inference;
  uint32_t field = 0;
  for (const Duration& duration : DurationsOf(counts)) {
    MessageBuilder part;
    part.Varint(kDurationCount, duration.count).Varint(kDurationNs, duration.ns);
    inference.Bytes(++field, part.bytes(), true);
  }
  stats.Bytes(kStatsName, model.name).Bytes(kStatsVersion, absl::StrCat(version.number));
  stats.Varint(kStatsLastInference, counts.last_ms).Varint(kStatsInferenceCount, counts.rows);
  stats.Varint(kStatsExecutionCount, counts.runs).Bytes(kStatsInference, inference.bytes());
  return stats.bytes();
}

Json StatisticsJson(const ModelView& model, const VersionView& version) {
  const InferenceCounts& counts = version.counts;
  Json inference = Json::object();
  for (const Duration& duration : DurationsOf(counts)) {
    inference[duration.name] = {{"count", duration.count}, {"ns", duration.ns}};
  }
  return {{"name", model.name},
          {"version", absl::StrCat(version.number)},
          {"last_inference", counts.last_ms},
          {"inference_count", counts.rows},
          {"execution_count", counts.runs},
          {"inference_stats", std::move(inference)},
          {"response_stats", Json::object()},
          {"batch_stats", Json::array()},
          {"memory_usage", Json::array()}};
}

}  // namespace

absl::Status DescribeTriton(std::string_view method, const ModelSpecView& spec, const HostView& host, Response* dst) {
  MessageBuilder answer;
  if (method == "ModelConfig") {
    Config config;
    if (absl::Status s = FindConfig(host, spec, &config); !s.ok()) return s;
    return Answer(answer.Bytes(kResponseConfig, ConfigMessage(config)).bytes(), dst);
  }
  const absl::Status status = VisitVersions(host, spec, [&](const ModelView& model, const VersionView& version) {
    answer.Bytes(kResponseStats, StatisticsMessage(model, version));
  });
  return status.ok() ? Answer(answer.bytes(), dst) : status;
}

absl::Status DescribeTritonJson(std::string_view method, const ModelSpecView& spec, const HostView& host,
                                Response* dst) {
  if (method == "config") {
    Config config;
    if (absl::Status s = FindConfig(host, spec, &config); !s.ok()) return s;
    return Answer(JsonText(ConfigJson(config)), dst);
  }
  Json list = Json::array();
  const absl::Status status = VisitVersions(host, spec, [&](const ModelView& model, const VersionView& version) {
    list.push_back(StatisticsJson(model, version));
  });
  return status.ok() ? Answer(JsonText(Json{{"model_stats", std::move(list)}}), dst) : status;
}

}  // namespace processor
