// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/desired_model.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/base/json_text.h"
#include "src/host/desired/desired_keys.h"
#include "src/host/desired/version_config.h"
#include "src/runtime/config/config_check.h"

namespace processor {
namespace {

constexpr int kMaxCount = 1 << 24;

// Reads a number that must be one of the model's versions.
void ReadVersionNumber(const JsonValue& value, const std::map<int64_t, DesiredVersion>& versions, int64_t* dst) {
  value.Integer(1, INT64_MAX, dst);
  if (!value.present() || versions.count(*dst) > 0) return;
  std::string known;
  for (const auto& [number, version] : versions) absl::StrAppend(&known, known.empty() ? "" : ", ", number);
  value.Refuse(absl::StrCat("one of the model's versions ", known));
}

void ReadConfig(const JsonValue& config, std::string* dst) {
  if (!config.present()) return;
  if (!config.json().is_object()) return config.Refuse("an object");
  for (const char* key : {"savedmodel_dir", "model_name", "model_version", "warmup_file_name", "cpusets", "batching",
                          "tables", "follow", "follow_epoch", "follow_store"}) {
    if (config.Member(key).present()) {
      config.Member(key).Fault("set, expected nothing: the version says it by keys of its own");
    }
  }
  *dst = JsonText(config.json());
}

void ReadFiles(const JsonValue& files, DesiredFiles* dst) {
  files.Allow({"sha256", "seal"});
  if (!files.present()) return;
  const auto is_hash = [](const std::string& text) {
    return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
             return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
           });
  };
  const JsonValue hash = files.Required("sha256", "64 hexadecimal digits");
  hash.String(&dst->sha256);
  if (hash.present() && !is_hash(dst->sha256)) hash.Refuse("64 hexadecimal digits");
  const JsonValue seal = files.Member("seal");
  seal.String(&dst->seal);
  if (seal.present() && !is_hash(dst->seal)) seal.Refuse("64 hexadecimal digits");
}

void ReadTimelineToFollow(const JsonValue& value, DesiredVersion* dst) {
  const JsonValue follow = value.Member("follow"), epoch = value.Member("epoch");
  follow.String(&dst->follow, /*nonempty=*/true);
  if (!dst->follow.empty() && dst->follow.front() != '/') follow.Refuse("a path that begins with '/'");
  if (!epoch.present()) return;
  epoch.Integer(0, INT64_MAX, &dst->epoch.emplace());
  if (!follow.present()) epoch.Fault("set, expected nothing: the version follows no timeline");
}

// Keys that only the control plane uses.
void PassOver(const JsonValue& annotations) {
  if (annotations.present() && !annotations.json().is_object()) annotations.Refuse("an object");
}

void ReadVersion(const JsonValue& value, int64_t number, DesiredVersion* dst) {
  value.Allow(DesiredVersionKeys());
  value.Required("path", "the folder of a SavedModel").String(&dst->path, /*nonempty=*/true);
  if (!dst->path.empty() && dst->path.front() != '/') value.Member("path").Refuse("a path that begins with '/'");
  ReadConfig(value.Member("config"), &dst->config);
  value.Member("warmup_file").String(&dst->warmup_file);
  value.Member("cpuset").String(&dst->cpuset);
  ReadBatchOptions(value.Member("batching"), &dst->batching);
  ReadTableOptions(value.Member("tables"), &dst->tables);
  const JsonValue limits = value.Member("limits");
  limits.Allow({"max_queue", "max_in_flight"});
  limits.Member("max_queue").Integer(1, kMaxCount, &dst->limits.max_queue);
  limits.Member("max_in_flight").Integer(1, kMaxCount, &dst->limits.max_in_flight);
  value.Member("priority").Integer(INT32_MIN, INT32_MAX, &dst->priority);
  value.Member("traffic").Boolean(&dst->traffic);
  ReadTimelineToFollow(value, dst);
  ReadFiles(value.Member("files"), &dst->files);
  value.Member("needs").ForEachItem(
      [&](const JsonValue& need) { need.String(&dst->needs.emplace_back(), /*nonempty=*/true); });
  PassOver(value.Member("annotations"));
  value.Check([&] {
    ModelConfig config;
    return CheckVersionConfig(*dst, number, &config);
  });
}

// Reads a version; its faults affect only this version.
void ReadVersionApart(const JsonValue& value, int64_t number, const std::string& model, const std::string* form_fault,
                      DesiredVersion* dst, std::vector<DesiredFault>* faults) {
  absl::Status fault;
  const JsonValue own = value.Apart(&fault);
  if (form_fault != nullptr) {
    own.Fault(*form_fault);
  } else if (!value.present()) {
    own.Refuse("an object");
  } else {
    ReadVersion(own, number, dst);
  }
  if (fault.ok()) return;
  const std::string path = dst->path;
  *dst = DesiredVersion();
  dst->path = path;
  dst->fault = fault;
  faults->push_back({model, number, std::string(fault.message())});
}

void ReadArms(const JsonValue& arms, DesiredModel* model) {
  RoutingRules& routing = model->routing;
  arms.ForEachItem([&](const JsonValue& item) {
    int offset = 0, weight = 0;
    RoutingArm arm;
    item.Allow({"version", "offset", "weight"});
    ReadVersionNumber(item.Required("version", "a version"), model->versions, &arm.version);
    item.Required("offset", "the first bucket").Integer(0, kRoutingBuckets, &offset);
    item.Required("weight", "a number of buckets").Integer(0, kRoutingBuckets, &weight);
    arm.offset = static_cast<uint32_t>(offset);
    arm.weight = static_cast<uint32_t>(weight);
    if (arm.offset + arm.weight > kRoutingBuckets) {
      item.Fault(absl::StrCat("buckets ", arm.offset, " to ", arm.offset + arm.weight, " found, expected at most ",
                              kRoutingBuckets));
    }
    for (const RoutingArm& other : routing.arms) {
      if (arm.offset < other.offset + other.weight && other.offset < arm.offset + arm.weight) {
        item.Fault(absl::StrCat("buckets that the arm of version ", other.version, " has, expected others"));
      }
    }
    if (arm.weight > 0) routing.arms.push_back(arm);
  });
  std::sort(routing.arms.begin(), routing.arms.end(),
            [](const RoutingArm& a, const RoutingArm& b) { return a.offset < b.offset; });
}

void ReadRouting(const JsonValue& value, const std::map<std::string, std::string>& salts, const std::string& name,
                 DesiredModel* model) {
  value.Allow({"layer", "key", "arms", "paused"});
  std::string layer = name;
  value.Member("layer").String(&layer, /*nonempty=*/true);
  const auto salt = salts.find(layer);
  model->routing.salt = salt == salts.end() ? layer : salt->second;
  const JsonValue key = value.Member("key");
  key.Allow({"input"});
  if (key.present()) {
    key.Required("input", "the name of an input").String(&model->routing.key_input.emplace(), /*nonempty=*/true);
  }
  ReadArms(value.Member("arms"), model);
  value.Member("paused").Boolean(&model->routing.paused);
}

void ReadModel(const JsonValue& value, const std::map<std::string, std::string>& salts, const std::string& name,
               const FormFaults& form, DesiredModel* model, std::vector<DesiredFault>* faults) {
  value.Allow(DesiredModelKeys());
  if (!IsServingName(name)) return value.Fault(absl::StrCat("the name of a model, expected ", kServingNameRule));
  PassOver(value.Member("annotations"));
  const JsonValue versions = value.Required("versions", "versions by their numbers");
  versions.ForEachMember([&](const std::string& key, const JsonValue& version) {
    int64_t number = 0;
    if (!ParseVersionNumber(key, &number))
      return version.Fault("the number of a version, expected 1 or more in decimal");
    const auto wrong = form.find({"models", name, "versions", key});
    ReadVersionApart(version, number, name, wrong == form.end() ? nullptr : &wrong->second, &model->versions[number],
                     faults);
  });
  const JsonValue baseline = value.Required("baseline", "the number of a version");
  ReadVersionNumber(baseline, model->versions, &model->baseline);
  const auto served = model->versions.find(model->baseline);
  if (served != model->versions.end() && !served->second.traffic) baseline.Refuse("a version with traffic");
  value.Member("labels").ForEachMember([&](const std::string& label, const JsonValue& number) {
    if (!IsServingName(label)) return number.Fault(absl::StrCat("a label, expected ", kServingNameRule));
    if (!number.present()) return number.Refuse("the number of a version");
    ReadVersionNumber(number, model->versions, &model->labels[label]);
  });
  ReadRouting(value.Member("routing"), salts, name, model);
  value.Member("shadow").ForEachItem([&](const JsonValue& item) {
    ShadowTarget target;
    item.Allow({"version", "weight"});
    ReadVersionNumber(item.Required("version", "a version"), model->versions, &target.version);
    item.Required("weight", "hundredths of a percent").Integer(0, kRoutingBuckets, &target.weight);
    if (target.weight > 0) model->shadow.push_back(target);
  });
  const JsonValue log = value.Member("request_log");
  log.Allow({"sample", "max_bytes", "max_files"});
  if (log.present()) {
    log.Required("sample", "hundredths of a percent").Integer(0, kRoutingBuckets, &model->request_log.sample);
    log.Member("max_bytes").Integer(4096, int64_t{1} << 40, &model->request_log.max_bytes);
    log.Member("max_files").Integer(2, 1000, &model->request_log.max_files);
  }
}

}  // namespace

bool IsServingName(std::string_view name) {
  const auto good = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && name.size() <= 128 && good(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return good(c) || c == '-' || c == '.'; });
}

bool ParseVersionNumber(std::string_view text, int64_t* number) {
  if (text.empty() || text.front() < '1' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

void ReadDesiredModel(const JsonValue& value, const std::map<std::string, std::string>& salts, const std::string& name,
                      const FormFaults& form, DesiredState* state) {
  absl::Status fault;
  const JsonValue own = value.Apart(&fault);
  DesiredModel model;
  std::vector<DesiredFault> faults;
  const auto wrong = form.find({"models", name});
  if (wrong != form.end()) {
    own.Fault(wrong->second);
  } else if (!value.present()) {
    own.Refuse("an object");
  } else {
    ReadModel(own, salts, name, form, &model, &faults);
  }
  if (fault.ok()) {
    state->models[name] = std::move(model);
    state->faults.insert(state->faults.end(), faults.begin(), faults.end());
  } else {
    state->faults.push_back({name, 0, std::string(fault.message())});
  }
}

}  // namespace processor
