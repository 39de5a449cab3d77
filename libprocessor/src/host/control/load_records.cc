// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/load_records.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "src/base/json_text.h"
#include "src/base/json_value.h"

namespace processor {
namespace {

constexpr int kSchema = 1;
constexpr size_t kMostDeaths = 2;

// FNV-1a; the text, a whole configuration, is not stored.
std::string Digest(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

std::string NameOf(const LoadKey& key) { return absl::StrCat("model '", key.model, "' version ", key.number); }

}  // namespace

LoadKey LoadRecords::Digested(const LoadKey& key) { return {key.model, key.number, Digest(key.identity)}; }

const LoadRecords::Record* LoadRecords::Find(const LoadKey& key) const {
  const auto found = records_.find(Digested(key));
  return found == records_.end() ? nullptr : &found->second;
}

LoadRecords LoadRecords::Read(std::string_view json, std::string_view boot, bool on_purpose, const std::string& now) {
  LoadRecords records;
  records.boot_ = std::string(boot);
  if (json.empty()) return records;
  nlohmann::json document;
  std::vector<JsonFault> form_faults;
  absl::Status fault = ParseJson("loads.json", json, &document, &form_faults);
  if (fault.ok() && !form_faults.empty()) {
    fault = absl::InvalidArgumentError(absl::StrCat("loads.json: ", form_faults.front().what));
  }
  std::string boot_of_marks;
  std::map<LoadKey, Record> read;
  if (fault.ok()) {
    const JsonValue root("loads.json: ", document, &fault);
    int schema = 0;
    root.Required("schema", absl::StrCat(kSchema)).Integer(kSchema, kSchema, &schema);
    root.Member("boot").String(&boot_of_marks);
    root.Member("versions").ForEachItem([&](const JsonValue& item) {
      LoadKey key;
      Record record;
      item.Required("model", "a name").String(&key.model);
      item.Required("version", "a number").Integer(0, INT64_MAX, &key.number);
      item.Required("identity", "a digest").String(&key.identity);
      item.Member("loading").Boolean(&record.loading);
      item.Member("suspect").Boolean(&record.suspect);
      item.Member("good").Boolean(&record.good);
      record.was_good = record.good;
      item.Member("deaths").ForEachItem([&](const JsonValue& time) { time.String(&record.deaths.emplace_back()); });
      read[key] = std::move(record);
    });
  }
  if (!fault.ok()) {
    records.found_ = absl::StrCat(fault.message(), "; counts as absent");
    return records;
  }
  records.records_ = std::move(read);
  // If the machine was restarted, a load need not have been the reason.
  const bool counts = !on_purpose && boot_of_marks == boot;
  if (counts) records.BlameMarked(now);
  for (auto& [key, record] : records.records_) {
    records.changed_ |= record.loading;
    record.loading = false;
  }
  return records;
}

void LoadRecords::BlameMarked(const std::string& now) {
  std::vector<std::string> names;
  for (const auto& [key, record] : records_) {
    if (record.loading) names.push_back(NameOf(key));
  }
  if (names.empty()) return;
  found_ = absl::StrCat("the host before died while it loaded ", absl::StrJoin(names, ", "));
  for (auto& [key, record] : records_) {
    if (!record.loading) continue;
    record.suspect = true;
    if (names.size() == 1) record.deaths.push_back(now);
  }
}

void LoadRecords::Begin(const LoadKey& key) {
  if (closed_) return;
  records_[Digested(key)].loading = true;
  changed_ = true;
}

void LoadRecords::End(const LoadKey& key, bool ready) {
  if (closed_) return;
  Record& record = records_[Digested(key)];
  record.loading = false;
  record.suspect = false;
  record.deaths.clear();
  record.good |= ready;
  if (record.Empty()) records_.erase(Digested(key));
  changed_ = true;
}

void LoadRecords::Close() {
  closed_ = true;
  for (auto& [key, record] : records_) {
    changed_ |= record.loading;
    record.loading = false;
  }
}

LoadRecords::Standing LoadRecords::StandingOf(const LoadKey& key, bool baseline) const {
  const Record* const record = Find(key);
  if (record == nullptr) return Standing::kUnknown;
  if (record->suspect && !(baseline && record->good)) return Standing::kSuspect;
  return record->good ? Standing::kKnownGood : Standing::kUnknown;
}

bool LoadRecords::WasGood(const LoadKey& key) const {
  const Record* const record = Find(key);
  return record != nullptr && record->was_good;
}

absl::Status LoadRecords::MayLoad(const LoadKey& key, bool baseline) const {
  const Record* const record = Find(key);
  if (record == nullptr || record->deaths.size() < kMostDeaths || (baseline && record->good)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("load: the host died twice while it loaded this version (", absl::StrJoin(record->deaths, ", "),
                   "), expected a version that loads; it is tried again when its entry changes"));
}

void LoadRecords::Keep(const std::vector<LoadKey>& keys) {
  std::map<LoadKey, Record> kept;
  for (const LoadKey& key : keys) {
    if (auto node = records_.extract(Digested(key)); !node.empty()) kept.insert(std::move(node));
  }
  changed_ |= !records_.empty();
  records_ = std::move(kept);
}

std::string LoadRecords::Json() const {
  nlohmann::ordered_json json;
  json["schema"] = kSchema;
  json["boot"] = boot_;
  json["versions"] = nlohmann::ordered_json::array();
  for (const auto& [key, record] : records_) {
    json["versions"].push_back({{"model", key.model},
                                {"version", key.number},
                                {"identity", key.identity},
                                {"loading", record.loading},
                                {"suspect", record.suspect},
                                {"good", record.good},
                                {"deaths", record.deaths}});
  }
  return JsonText(json);
}

bool LoadRecords::TakeChanged() { return std::exchange(changed_, false); }

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace processor
