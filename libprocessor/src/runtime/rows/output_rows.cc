// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/output_rows.h"

#include <mutex>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"

namespace processor {

void OutputRows::SetProofs(const Signature& signature, std::vector<RowProof> proofs) {
  proofs_[&signature] = std::move(proofs);
}

void OutputRows::MakeEntry(const Key& key, Entry* entry) const {
  const auto found = proofs_.find(key.first);
  if (found == proofs_.end()) return;
  entry->proved = true;
  for (const int output : key.second) {
    const RowProof& proof = found->second[static_cast<size_t>(output)];
    entry->proved = entry->proved && proof.finding == RowProof::Finding::kIndependent;
    if (proof.finding != RowProof::Finding::kDependent) continue;
    entry->other = true;
    entry->reason = proof.reason;
    return;
  }
  if (entry->proved) entry->needed = 1;
}

OutputRows::Entry* OutputRows::Find(const DecodedRequest& request) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = entries_.find(Key(request.signature, request.fetches));
  return found == entries_.end() ? nullptr : found->second.get();
}

OutputRows::Entry* OutputRows::FindOrAdd(const DecodedRequest& request) {
  if (Entry* const found = Find(request); found != nullptr) return found;
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const Key key(request.signature, request.fetches);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second.get();
  // If clients request too many subsets of the outputs, those that are not remembered run alone.
  if (entries_.size() >= kMaxKept) return nullptr;
  auto entry = std::make_unique<Entry>();
  MakeEntry(key, entry.get());
  return entries_.emplace(key, std::move(entry)).first->second.get();
}

bool OutputRows::MayJoin(const DecodedRequest& request) const {
  if (differed()) return false;
  const Entry* const entry = Find(request);
  return entry == nullptr || !entry->other.load(std::memory_order_relaxed);
}

bool OutputRows::IsProved(const DecodedRequest& request) const {
  const Entry* const entry = Find(request);
  return entry != nullptr && entry->proved;
}

bool OutputRows::IsTurn(uint64_t run, uint64_t every) {
  // Chosen pseudo-randomly, so that no pattern of requests evades it.
  uint64_t hash = (run + 1) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93u;
  return (hash ^ (hash >> 32)) % every == 0;
}

void OutputRows::Refuse(const DecodedRequest& request, Entry* entry, const std::string& reason) {
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (entry->other.exchange(true)) return;
    entry->reason = reason;
  }
  Log(Severity::kWarning, absl::StrCat("batching: signature '", request.signature->name(), "': ", reason,
                                       ", so that its requests run alone"));
}

void OutputRows::Tried(const DecodedRequest& request, bool agree, Likeness likeness) {
  Entry* const entry = FindOrAdd(request);
  if (entry == nullptr) return;
  if (!agree) return Refuse(request, entry, "outputs do not follow the rows of the inputs");
  const int worth = entry->proved ? 1 : kWorth[static_cast<size_t>(likeness)];
  if (worth > 0) entry->needed.fetch_sub(worth, std::memory_order_relaxed);
  if (likeness == Likeness::kCopies) entry->needed_copies.fetch_sub(1, std::memory_order_relaxed);
}

void OutputRows::Checked(const DecodedRequest& request, const std::string& differs) {
  checks_.fetch_add(1, std::memory_order_relaxed);
  if (differs.empty()) return;
  const std::string what = absl::StrCat("signature '", request.signature->name(), "': output '", differs,
                                        "' of a batched request: differs from a separate run");
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (off_.exchange(true)) return;
    difference_ = what;
  }
  Log(Severity::kError,
      absl::StrCat("batching: ", what, ", expected equal outputs; all requests of the version run alone from now on"));
}

nlohmann::ordered_json OutputRows::Json(const std::vector<std::unique_ptr<Signature>>& signatures) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& signature : signatures) {
    std::vector<int> all(signature->outputs().size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    Entry untried;
    const auto found = entries_.find(Key(signature.get(), all));
    if (found == entries_.end()) MakeEntry(Key(signature.get(), all), &untried);
    const Entry& entry = found == entries_.end() ? untried : *found->second;
    std::string reason = off_ ? difference_ : entry.reason;
    const char* rows = "unproved";
    if (off_ || entry.other) {
      rows = "dependent";
    } else if (entry.proved) {
      rows = "independent";
    } else if (entry.needed <= 0) {
      rows = "tried";
    }
    if (const auto proofs = proofs_.find(signature.get()); reason.empty() && proofs != proofs_.end()) {
      for (const RowProof& proof : proofs->second) {
        if (reason.empty()) reason = proof.reason;
      }
    }
    json[signature->name()] = {{"rows", rows}, {"reason", reason.empty() ? nullptr : nlohmann::ordered_json(reason)}};
  }
  return json;
}

}  // namespace processor
