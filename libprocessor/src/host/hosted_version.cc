// SPDX-License-Identifier: Apache-2.0
#include "src/host/hosted_version.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/runtime/json_text.h"
#include "src/runtime/model_config.h"

namespace processor {
namespace {

constexpr int kNoQueueLimit = 1 << 24;

// One group for all sessions is written once.
std::string PerSession(const std::string& cpuset, int sessions) {
  if (cpuset.empty() || cpuset.find(';') != std::string::npos) return cpuset;
  std::string all = cpuset;
  for (int i = 1; i < sessions; ++i) absl::StrAppend(&all, ";", cpuset);
  return all;
}

bool SaysExecution(const ModelConfig& config) { return config.source.contains("execution"); }

absl::Status MakeConfig(const DesiredVersion& wanted, int64_t number, ModelConfig* config) {
  nlohmann::json keys = nlohmann::json::parse(wanted.config);
  keys["model_version"] = number;
  if (!wanted.warmup_file.empty()) keys["warmup_file_name"] = wanted.warmup_file;
  // The host itself waits for folders and limits queues; it can do so without keeping other loads waiting.
  keys["init_timeout_minutes"] = -1;
  keys["batching"] = BatchOptionsJson(wanted.batching);
  if (!keys.contains("max_queue_size")) keys["max_queue_size"] = kNoQueueLimit;
  if (absl::Status s = ParseModelConfig(JsonText(keys), ConfigDialect::kModern, config); !s.ok()) return s;
  if (wanted.cpuset.empty()) return absl::OkStatus();
  const std::string cpusets = PerSession(wanted.cpuset, config->session_num);
  if (absl::Status s = ParseCpusets(cpusets, config->session_num, AllowedCpus(), &config->cpusets); !s.ok()) return s;
  if (!SaysExecution(*config)) config->execution = Execution::kPinned;
  return absl::OkStatus();
}

}  // namespace

absl::Status ResolvePath(const std::string& path, std::string* resolved) {
  char* const real = realpath(path.c_str(), nullptr);
  if (real == nullptr) {
    const std::string message = absl::StrCat("path '", path, "': ", std::strerror(errno), ", expected a SavedModel");
    return errno == EACCES ? absl::PermissionDeniedError(message) : absl::NotFoundError(message);
  }
  *resolved = real;
  std::free(real);
  return absl::OkStatus();
}

std::string CheckpointDirOf(const DesiredVersion& wanted) {
  const nlohmann::json keys = nlohmann::json::parse(wanted.config);
  const auto dir = keys.find("checkpoint_dir");
  return dir != keys.end() && dir->is_string() ? dir->get<std::string>() : "";
}

absl::Status HostedVersion::Load(const DesiredVersion& wanted, int64_t number, std::shared_ptr<LoadProgress> progress,
                                 std::unique_ptr<HostedVersion>* version) {
  ModelConfig config;
  if (absl::Status s = MakeConfig(wanted, number, &config); !s.ok()) return s;
  std::string path;
  if (absl::Status s = ResolvePath(wanted.path, &path); !s.ok()) return s;
  std::shared_ptr<Model> model;
  if (absl::Status s = Model::Load(std::move(config), path, &model, std::move(progress)); !s.ok()) return s;
  version->reset(new HostedVersion(std::move(model)));
  return absl::OkStatus();
}

absl::Status HostedVersion::SetCpuset(const std::string& cpuset) {
  if (absl::Status s = model_->SetCpuset(PerSession(cpuset, sessions())); !s.ok()) return s;
  if (!SaysExecution(model_->config())) {
    model_->SetExecution(cpuset.empty() ? Execution::kInline : Execution::kPinned);
  }
  return absl::OkStatus();
}

int64_t HostedVersion::QueuedOf(int64_t in_flight) const {
  // On CPUs of its own fewer may run at once than it has threads.
  const bool pinned = model_->execution() == Execution::kPinned;
  const int64_t places = int64_t{sessions()} * (pinned ? 1 : model_->config().worker_threads);
  if (in_flight <= places) return 0;
  // Whoever calls and waits runs the request on a thread of its own, unless sessions have CPUs of theirs or put requests
  // together: only the model knows who waits.
  return static_cast<int64_t>(model_->queued());
}

std::vector<std::string> HostedVersion::cpusets() const {
  // Threads of callers run where the callers are.
  if (model_->execution() == Execution::kInline) return std::vector<std::string>(static_cast<size_t>(sessions()));
  return model_->Cpusets();
}

std::string HostedVersion::precision() const {
  const std::shared_ptr<ModelVersion> version = model_->version();
  return version == nullptr ? "" : version->precision().precision;
}

}  // namespace processor
