// SPDX-License-Identifier: Apache-2.0
// How a model comes by its versions: the first, and those of later checkpoints.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/runtime/model/model.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/threads/process_threads.h"
#include "src/runtime/version/saved_model.h"
#include "src/runtime/version/warmup.h"

namespace processor {
namespace {

// The number of a folder in the layout of TensorFlow Serving: "/models/ranking/7".
std::optional<int64_t> NumberOfFolder(const std::string& dir) {
  std::filesystem::path path(dir);
  if (path.filename().empty()) path = path.parent_path();
  const std::string name = path.filename().string();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

absl::Status Model::FindSource(VersionSource* source) {
  source->saved_model_dir = config_.savedmodel_dir.empty() ? base_dir_ : config_.savedmodel_dir;
  source->checkpoint_prefix.clear();
  source->number = config_.model_version.has_value() ? config_.model_version : NumberOfFolder(source->saved_model_dir);
  if (config_.checkpoint_dir.empty()) return absl::OkStatus();

  Checkpoint checkpoint;
  if (absl::Status s = FindCheckpoint(config_.checkpoint_dir, &checkpoint); !s.ok()) return s;
  source->checkpoint_prefix = checkpoint.prefix;
  if (!config_.model_version.has_value()) source->number = checkpoint.step;
  std::lock_guard<std::mutex> lock(version_mutex_);
  checkpoint_ = checkpoint;
  std::string refused;
  if (checkpoint.incomplete_step >= 0) {
    refused = absl::StrCat("checkpoint ", checkpoint.incomplete_step, " passed over: data files are missing, ",
                           checkpoint.step, " is the latest complete one");
  }
  if (checkpoint.incremental_step >= 0) {
    refused = absl::StrCat("incremental checkpoint ", checkpoint.incremental_step,
                           " refused: only full checkpoints are "
                           "applied, ",
                           checkpoint.step, " is the latest");
  }
  if (refused != refused_update_ && !refused.empty()) Log(Severity::kWarning, refused);
  refused_update_ = refused;
  return absl::OkStatus();
}

absl::Status Model::WaitForSource(VersionSource* source) {
  const int64_t until_ns = NowNs() + int64_t{60} * 1000000000 * config_.init_timeout_minutes;
  for (;;) {
    absl::Status status = FindSource(source);
    if (status.ok()) {
      tensorflow::MetaGraphDef meta_graph;
      status = ReadSavedModel(source->saved_model_dir, &meta_graph);
      // Anything but absence is for Load() to report.
      if (!absl::IsNotFound(status)) return absl::OkStatus();
    }
    if (!absl::IsNotFound(status) || config_.init_timeout_minutes <= 0) return status;
    if (NowNs() >= until_ns) {
      return absl::Status(status.code(), absl::StrCat(status.message(), ", after init_timeout_minutes (",
                                                      config_.init_timeout_minutes, ")"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

absl::Status Model::LoadFirst() {
  VersionSource source;
  if (config_.init_timeout_minutes > 0) {
    if (absl::Status s = WaitForSource(&source); !s.ok()) return s;
  } else if (absl::Status s = FindSource(&source); !s.ok()) {
    return s;
  }
  return LoadVersion(source, /*background=*/false);
}

absl::Status Model::LoadVersion(const VersionSource& source, bool background) {
  const int64_t start_ns = NowNs();
  std::shared_ptr<ModelVersion> loaded;
  {
    // Initialisers and warm-up requests may take for ever.
    Cancellation& cancellation = progress_->cancellation;
    const Cancellation::Scope scope(&cancellation);
    absl::Status status = ModelVersion::Load(config_, source, slots_, background, cancellation, &loaded);
    if (status.ok()) {
      progress_->warming = true;
      loaded->Claim(ScratchUse::kWarmUp);
      status = WarmUp(config_, base_dir_, slots_.size(), cancellation, *loaded);
      loaded->Claim(ScratchUse::kRequests);
    }
    if (!status.ok()) return cancellation.requested() ? cancellation.why() : status;
  }
  loaded->load_ms = static_cast<double>(NowNs() - start_ns) / 1e6;

  // Our own executor refuses loops.
  bounded_ = loaded->executor() == Executor::kSingleThreaded;
  std::lock_guard<std::mutex> lock(version_mutex_);
  loaded->generation = ++generation_;
  if (version_ != nullptr) retired_.push_back(std::move(version_));
  version_ = std::move(loaded);
  return absl::OkStatus();
}

void Model::FollowCheckpoints() {
  KeepThreadInPlace();
  const auto poll = std::chrono::duration<double>(config_.checkpoint_poll_seconds);
  auto next = std::chrono::steady_clock::now() + poll;
  std::unique_lock<std::mutex> lock(update_mutex_);
  while (!stop_updates_) {
    bool waiting_for_requests = false;
    {
      std::lock_guard<std::mutex> version_lock(version_mutex_);
      waiting_for_requests = !retired_.empty();
    }
    // A retired version is looked at again soon: its memory is wanted back.
    const auto wake = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    if (waiting_for_requests && wake < next) {
      update_wake_.wait_until(lock, wake);
    } else {
      update_wake_.wait_until(lock, next);
    }
    if (stop_updates_) return;
    lock.unlock();
    ReleaseRetired();
    if (std::chrono::steady_clock::now() >= next) {
      Attempt([this] { return TryUpdate(), absl::OkStatus(); }).IgnoreError();
      next = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(poll);
    }
    lock.lock();
  }
}

absl::Status Model::Update() {
  VersionSource source;
  if (absl::Status s = FindSource(&source); !s.ok()) return s;
  if (source.checkpoint_prefix == version()->source().checkpoint_prefix) return absl::OkStatus();
  if (absl::Status s = LoadVersion(source, /*background=*/true); !s.ok()) return s;
  Log(Severity::kInfo, absl::StrCat("checkpoint '", source.checkpoint_prefix, "': serving"));
  return absl::OkStatus();
}

void Model::TryUpdate() {
  const absl::Status status = Attempt([this] { return Update(); });
  if (progress_->cancellation.requested()) return;  // nobody is interested any more
  const std::string error = status.ok() ? "" : status.ToString();
  std::lock_guard<std::mutex> lock(version_mutex_);
  // Once per fault, not once per poll.
  if (!error.empty() && error != update_error_) {
    Log(Severity::kError, absl::StrCat("update: ", error, "; the version before goes on serving"));
  }
  update_error_ = error;
}

void Model::ReleaseRetired() {
  // One at a time, destroyed without the lock.
  for (std::shared_ptr<ModelVersion> unused;; unused.reset()) {
    std::lock_guard<std::mutex> lock(version_mutex_);
    // Ours is the last reference, and nobody can take another from a version that is no longer current.
    const auto found = std::find_if(retired_.begin(), retired_.end(), [](const auto& v) { return v.use_count() == 1; });
    if (found == retired_.end()) return;
    unused = std::move(*found);
    retired_.erase(found);
  }
}

}  // namespace processor
