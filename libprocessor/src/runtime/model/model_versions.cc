// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/model_versions.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/process_threads.h"
#include "src/runtime/version/checkpoint.h"
#include "src/runtime/version/saved_model.h"
#include "src/runtime/version/warmup.h"

namespace processor {
namespace {

// Returns the number of a folder in the layout of TensorFlow Serving: "/models/ranking/7".
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

ModelVersions::ModelVersions(const ModelConfig& config, std::string base_dir, const SessionSlots& slots,
                             std::shared_ptr<LoadProgress> progress)
    : config_(config), base_dir_(std::move(base_dir)), slots_(slots), progress_(std::move(progress)) {}

absl::Status ModelVersions::FindSource(VersionSource* source) {
  source->saved_model_dir = config_.savedmodel_dir.empty() ? base_dir_ : config_.savedmodel_dir;
  source->checkpoint_prefix.clear();
  source->increment.clear();
  source->number = config_.model_version.has_value() ? config_.model_version : NumberOfFolder(source->saved_model_dir);
  if (config_.checkpoint_dir.empty()) return absl::OkStatus();

  Checkpoint checkpoint;
  if (absl::Status s = FindCheckpoint(config_.checkpoint_dir, &checkpoint); !s.ok()) return s;
  source->checkpoint_prefix = checkpoint.prefix;
  source->increment = checkpoint.increment;
  const int64_t latest = std::max(checkpoint.step, checkpoint.incremental_step);
  if (!config_.model_version.has_value()) source->number = latest;
  std::string refused;
  if (checkpoint.incomplete_step >= 0) {
    refused = absl::StrCat("checkpoint ", checkpoint.incomplete_step, " passed over: data files are missing, ", latest,
                           " is the latest complete one");
  }
  if (SetText(&refused_, refused)) Log(Severity::kWarning, refused);
  return absl::OkStatus();
}

absl::Status ModelVersions::WaitForSource(VersionSource* source) {
  const int64_t until_ns = NowNs() + int64_t{60} * 1000000000 * config_.init_timeout_minutes;
  for (;;) {
    absl::Status status = FindSource(source);
    if (status.ok()) {
      tensorflow::MetaGraphDef meta_graph;
      status = ReadSavedModel(source->saved_model_dir, &meta_graph);
      // Any other fault is left to Load().
      if (!absl::IsNotFound(status)) return absl::OkStatus();
    }
    if (!absl::IsNotFound(status)) return status;
    if (NowNs() >= until_ns) {
      return absl::Status(status.code(), absl::StrCat(status.message(), ", after init_timeout_minutes (",
                                                      config_.init_timeout_minutes, ")"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

absl::Status ModelVersions::Start() {
  VersionSource source;
  const absl::Status found = config_.init_timeout_minutes > 0 ? WaitForSource(&source) : FindSource(&source);
  if (!found.ok()) return found;
  absl::Status loaded = Load(source, /*background=*/false);
  if (!loaded.ok() && LeaveIncrement(loaded, &source)) loaded = Load(source, /*background=*/false);
  if (!loaded.ok()) return loaded;
  if (!config_.checkpoint_dir.empty()) follower_ = std::thread([this] { Follow(); });
  return absl::OkStatus();
}

ModelVersions::Following ModelVersions::following() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {error_, refused_, retired_.size()};
}

void ModelVersions::Stop() noexcept {
  progress_->GiveUp(
      StatusWithoutThrowing(absl::StatusCode::kCancelled, "load: given up, since the model is being freed"));
  {
    std::lock_guard<std::mutex> lock(stop_mutex_);
    stopped_ = true;
  }
  stop_wake_.notify_all();
  if (follower_.joinable()) follower_.join();
}

void ModelVersions::Release() noexcept {
  // The version is destroyed without the lock.
  std::vector<std::shared_ptr<ModelVersion>> retired;
  const std::shared_ptr<ModelVersion> current = current_.Exchange(nullptr);
  std::lock_guard<std::mutex> lock(mutex_);
  retired.swap(retired_);
}

absl::Status ModelVersions::Load(const VersionSource& source, bool background) {
  const int64_t start_ns = NowNs();
  std::shared_ptr<ModelVersion> loaded;
  {
    // Initializers and warm-up requests may never end.
    Cancellation& cancellation = progress_->cancellation;
    const Cancellation::Scope scope(&cancellation);
    absl::Status status = ModelVersion::Load(config_, source, slots_, background, cancellation, &loaded);
    if (status.ok()) {
      progress_->warming = true;
      loaded->Claim(ScratchUse::kWarmUp);
      status = WarmUp(config_, base_dir_, static_cast<size_t>(slots_.size()), cancellation, *loaded);
      loaded->Claim(ScratchUse::kRequests);
    }
    if (!status.ok()) return cancellation.requested() ? cancellation.why() : status;
  }
  loaded->load_ms = static_cast<double>(NowNs() - start_ns) / 1e6;

  bounded_ = loaded->bounded();
  loaded->generation = ++generation_;
  if (std::shared_ptr<ModelVersion> replaced = current_.Exchange(std::move(loaded))) {
    std::lock_guard<std::mutex> lock(mutex_);
    retired_.push_back(std::move(replaced));
  }
  return absl::OkStatus();
}

void ModelVersions::Follow() {
  KeepThreadInPlace();
  const auto poll = std::chrono::duration<double>(config_.checkpoint_poll_seconds);
  auto next = std::chrono::steady_clock::now() + poll;
  std::unique_lock<std::mutex> lock(stop_mutex_);
  while (!stopped_) {
    bool held_by_requests = false;
    {
      std::lock_guard<std::mutex> version_lock(mutex_);
      held_by_requests = !retired_.empty();
    }
    // A replaced version is checked again soon, to free its memory.
    const auto wake = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    if (held_by_requests && wake < next) {
      stop_wake_.wait_until(lock, wake);
    } else {
      stop_wake_.wait_until(lock, next);
    }
    if (stopped_) return;
    lock.unlock();
    DestroyUnused();
    if (std::chrono::steady_clock::now() >= next) {
      Attempt([this] { return TryUpdate(), absl::OkStatus(); }).IgnoreError();
      next = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(poll);
    }
    lock.lock();
  }
}

absl::Status ModelVersions::Update() {
  VersionSource source;
  if (absl::Status s = FindSource(&source); !s.ok()) return s;
  const VersionSource& serving = current()->source();
  const bool same = source.checkpoint_prefix == serving.checkpoint_prefix;
  // An increment that was removed leaves what it has changed.
  if (same && (source.increment.empty() || source.increment == serving.increment)) return absl::OkStatus();
  absl::Status status = Load(source, /*background=*/true);
  if (!status.ok()) {
    // A full checkpoint is served without a later increment that fails, whose fault is reported nevertheless.
    if (same || !LeaveIncrement(status, &source)) return status;
    if (absl::Status s = Load(source, /*background=*/true); !s.ok()) return s;
  }
  Log(Severity::kInfo,
      absl::StrCat("checkpoint '", source.increment.empty() ? source.checkpoint_prefix : source.increment,
                   "': serving"));
  return status;
}

bool ModelVersions::LeaveIncrement(const absl::Status& why, VersionSource* source) {
  if (source->increment.empty() || progress_->cancellation.requested()) return false;
  const std::string error = why.ToString();
  if (SetText(&error_, error)) Log(Severity::kError, absl::StrCat("update: ", error, "; it is left out"));
  source->increment.clear();
  if (!config_.model_version.has_value()) source->number = StepOfCheckpoint(source->checkpoint_prefix);
  return true;
}

void ModelVersions::TryUpdate() {
  const absl::Status status = Attempt([this] { return Update(); });
  if (progress_->cancellation.requested()) return;  // the model is being freed
  const std::string error = status.ok() ? "" : status.ToString();
  if (SetText(&error_, error)) {
    Log(Severity::kError, absl::StrCat("update: ", error, "; the previous version still serves"));
  }
}

// A failure is logged once, not at each poll.
bool ModelVersions::SetText(std::string* text, const std::string& found) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (found == *text) return false;
  *text = found;
  return !found.empty();
}

void ModelVersions::DestroyUnused() {
  // Versions are destroyed one at a time, without the lock.
  for (std::shared_ptr<ModelVersion> unused;; unused.reset()) {
    std::lock_guard<std::mutex> lock(mutex_);
    // This is the last reference, and no other can be taken from a version that is no longer current.
    const auto found = std::find_if(retired_.begin(), retired_.end(), [](const auto& v) { return v.use_count() == 1; });
    if (found == retired_.end()) return;
    unused = std::move(*found);
    retired_.erase(found);
  }
}

}  // namespace processor
