// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/version_config.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/runtime/config/config_check.h"

namespace processor {
namespace {

constexpr int kNoQueueLimit = 1 << 24;

// Merges all keys of a version into one configuration.
std::string KeysOf(const DesiredVersion& wanted, int64_t number) {
  nlohmann::json keys = nlohmann::json::parse(wanted.config);
  keys["model_version"] = number;
  if (!wanted.warmup_file.empty()) keys["warmup_file_name"] = wanted.warmup_file;
  if (!wanted.follow.empty()) keys["follow"] = wanted.follow;
  if (wanted.epoch.has_value()) keys["follow_epoch"] = *wanted.epoch;
  // The host itself waits for folders and limits queues, so that other loads do not wait.
  keys["init_timeout_minutes"] = -1;
  keys["batching"] = BatchOptionsJson(wanted.batching);
  if (wanted.tables.tier == TableTier::kTiered) {
    keys["tables"] = {{"tier", "tiered"}, {"memory", wanted.tables.memory}, {"early_reads", wanted.tables.early_reads}};
  } else if (wanted.tables.tier == TableTier::kResident) {
    keys["tables"] = {{"tier", "resident"}, {"share_folder", wanted.tables.share_folder}};
  }
  if (!keys.contains("max_queue_size")) keys["max_queue_size"] = kNoQueueLimit;
  return JsonText(keys);
}

}  // namespace

std::string CpusetPerSession(const std::string& cpuset, int sessions) {
  if (cpuset.empty() || cpuset.find(';') != std::string::npos) return cpuset;
  std::string all = cpuset;
  for (int i = 1; i < sessions; ++i) absl::StrAppend(&all, ";", cpuset);
  return all;
}

bool SaysExecution(const ModelConfig& config) { return config.source.contains("execution"); }

absl::Status CheckVersionConfig(const DesiredVersion& wanted, int64_t number, ModelConfig* config) {
  return ReadModelConfig(KeysOf(wanted, number), ConfigDialect::kModern, config);
}

absl::Status SetVersionCpus(const std::string& cpuset, const CpuSet& allowed, ModelConfig* config) {
  if (cpuset.empty()) return absl::OkStatus();
  const std::string cpusets = CpusetPerSession(cpuset, config->session_num);
  if (absl::Status s = ParseCpusets(cpusets, config->session_num, allowed, &config->cpusets); !s.ok()) return s;
  if (!SaysExecution(*config)) config->execution = Execution::kPinned;
  return absl::OkStatus();
}

absl::Status MakeVersionConfig(const DesiredVersion& wanted, int64_t number, const CpuSet& allowed,
                               ModelConfig* config) {
  const absl::Status status = ParseModelConfig(KeysOf(wanted, number), ConfigDialect::kModern, config);
  return status.ok() ? SetVersionCpus(wanted.cpuset, allowed, config) : status;
}

}  // namespace processor
