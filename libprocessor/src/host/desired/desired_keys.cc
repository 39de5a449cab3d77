// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/desired_keys.h"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace processor {
namespace {

constexpr char kStateLevel[] = "desired:", kHostLevel[] = "host:", kModelLevel[] = "model:",
               kVersionLevel[] = "version:";

std::vector<std::string> Known(std::string_view level, std::initializer_list<std::string_view> keys) {
  std::vector<std::string> known;
  for (const std::string_view key : keys) {
    if (!IsWithoutFeature(absl::StrCat(level, key))) known.emplace_back(key);
  }
  return known;
}

void AddFeatures(std::string_view level, const std::vector<std::string>& keys, std::vector<std::string>* features) {
  for (const std::string& key : keys) features->push_back(absl::StrCat(level, key));
}

}  // namespace

const std::vector<std::string>& DesiredStateKeys() {
  static const auto* keys = new std::vector<std::string>(
      Known(kStateLevel, {"schema", "generation", "waiting", "memory_limit_bytes", "maintenance_cpus",
                          "load_timeout_seconds", "layers", "models", "refused", "hosts"}));
  return *keys;
}

const std::vector<std::string>& DesiredHostKeys() {
  static const auto* keys = new std::vector<std::string>(Known(kHostLevel, {"cpusets", "drained"}));
  return *keys;
}

const std::vector<std::string>& DesiredModelKeys() {
  static const auto* keys = new std::vector<std::string>(
      Known(kModelLevel, {"annotations", "baseline", "labels", "request_log", "routing", "shadow", "versions"}));
  return *keys;
}

const std::vector<std::string>& DesiredVersionKeys() {
  static const auto* keys = new std::vector<std::string>(
      Known(kVersionLevel, {"path", "config", "warmup_file", "cpuset", "batching", "tables", "limits", "priority",
                            "traffic", "follow", "epoch", "files", "needs", "annotations"}));
  return *keys;
}

std::vector<std::string> DesiredFeatures() {
  std::vector<std::string> features;
  AddFeatures(kStateLevel, DesiredStateKeys(), &features);
  AddFeatures(kHostLevel, DesiredHostKeys(), &features);
  AddFeatures(kModelLevel, DesiredModelKeys(), &features);
  AddFeatures(kVersionLevel, DesiredVersionKeys(), &features);
  return features;
}

bool IsWithoutFeature(std::string_view feature) {
  static const auto* without = [] {
    const char* const names = std::getenv("PROCESSOR_WITHOUT_FEATURES");
    return new std::vector<std::string>(absl::StrSplit(names == nullptr ? "" : names, ',', absl::SkipEmpty()));
  }();
  return std::find(without->begin(), without->end(), feature) != without->end();
}

}  // namespace processor
