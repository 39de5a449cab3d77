// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/desired_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/host/versions/host_features.h"
#include "src/host/versions/memory_budget.h"
#include "src/runtime/stats/stats.h"

namespace processor {

DesiredFile::DesiredFile(StateDirectory* directory, std::string host_id)
    : directory_(*directory), host_id_(std::move(host_id)) {
  const std::string text = directory_.ReadHostFile(kAcceptedFile);
  AcceptedState accepted;
  if (text.empty() || !AcceptDesired(text, "", host_id_, &accepted).ok()) return;
  Follow(std::move(accepted));
  directory_.ExpectDesired();
}

void DesiredFile::Follow(AcceptedState accepted) {
  state_ = std::move(accepted.state);
  RefuseWhatIsBeyond(HostFeatures(), &state_);
  accepted_ = std::move(accepted.text);
  memory_limit_ = state_.memory_limit_bytes > 0 ? state_.memory_limit_bytes : MemoryOfMachine();
}

bool DesiredFile::Read() {
  std::string text;
  bool changed = false;
  absl::Status status = directory_.ReadDesired(&text, &changed);
  if (status.ok() && !changed) {
    // An unchanged file is not read again, and a refused one stays refused.
    if (missing_) error_ = refused_;
    missing_ = false;
    return false;
  }
  missing_ = !changed;
  if (!changed) {
    error_ = absl::StrCat(status.message(), "; the previous desired state is still followed");
    return false;
  }
  AcceptedState accepted;
  status = AcceptDesired(text, accepted_, host_id_, &accepted);
  error_ = refused_ =
      status.ok() ? accepted.error : absl::StrCat(status.message(), "; the previous desired state is still followed");
  if (!status.ok()) return false;
  waiting_ = accepted.state.waiting;
  if (!waiting_.empty()) return false;
  Follow(std::move(accepted));
  dirty_ = true;
  return true;
}

void DesiredFile::WriteAccepted() {
  if (!dirty_ || NowNs() < write_at_ns_) return;
  // actual.json, on the same disk, fails as well, and that is logged.
  const absl::Status status = directory_.WriteHostFile(kAcceptedFile, accepted_, /*durable=*/true);
  dirty_ = !status.ok();
  if (!status.ok()) write_at_ns_ = NowNs() + kSecondNs;
}

}  // namespace processor
