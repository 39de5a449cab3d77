// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/hosted_version.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/host/desired/version_config.h"
#include "src/runtime/config/model_config.h"

namespace processor {

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

double LoadTimeoutOf(const DesiredVersion& wanted, double otherwise) {
  const nlohmann::json keys = nlohmann::json::parse(wanted.config);
  const auto said = keys.find("load_timeout_seconds");
  return said != keys.end() && said->is_number() ? said->get<double>() : otherwise;
}

absl::Status HostedVersion::Load(const DesiredVersion& wanted, int64_t number, const HostedPlace& place,
                                 std::shared_ptr<LoadProgress> progress, std::unique_ptr<HostedVersion>* version) {
  ModelConfig config;
  if (absl::Status s = MakeVersionConfig(wanted, number, AllowedCpus(), &config); !s.ok()) return s;
  config.log_name = place.name;
  if (!config.follow.empty()) config.follow_store = place.delta_store;
  std::string path;
  if (absl::Status s = ResolvePath(wanted.path, &path); !s.ok()) return s;
  std::shared_ptr<Model> model;
  if (absl::Status s = Model::Load(std::move(config), path, &model, std::move(progress)); !s.ok()) return s;
  version->reset(new HostedVersion(std::move(model)));
  return absl::OkStatus();
}

absl::Status HostedVersion::SetCpuset(const std::string& cpuset) {
  if (absl::Status s = model_->SetCpuset(CpusetPerSession(cpuset, sessions())); !s.ok()) return s;
  if (!SaysExecution(model_->config())) {
    model_->SetExecution(cpuset.empty() ? Execution::kInline : Execution::kPinned);
  }
  return absl::OkStatus();
}

int64_t HostedVersion::QueuedOf(int64_t in_flight) const {
  // A version with its own CPUs runs at most one request per CPU.
  const bool pinned = model_->execution() == Execution::kPinned;
  const int64_t places = pinned ? sessions() : model_->slots().RequestsAtOnce();
  if (in_flight <= places) return 0;
  // A caller that waits runs the request on its own thread, unless sessions have their own CPUs or batch requests:
  // then only the model knows which requests wait.
  return static_cast<int64_t>(model_->queued());
}

std::vector<std::string> HostedVersion::cpusets() const {
  // Inline requests run on the CPUs of their callers.
  if (model_->execution() == Execution::kInline) return std::vector<std::string>(static_cast<size_t>(sessions()));
  return model_->slots().Cpusets();
}

std::string HostedVersion::warmup() const {
  const std::shared_ptr<ModelVersion> version = model_->version();
  return version == nullptr ? "" : version->warmup_outcome;
}

std::string HostedVersion::precision() const {
  const std::shared_ptr<ModelVersion> version = model_->version();
  return version == nullptr ? "" : version->precision().precision;
}

}  // namespace processor
