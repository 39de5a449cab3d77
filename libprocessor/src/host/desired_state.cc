// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired_state.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/host/json_value.h"
#include "src/runtime/json_text.h"

namespace processor {
namespace {

constexpr char kNameRule[] = "1 to 128 letters, digits, '_', '-' and '.', the first no '-' or '.'";
constexpr int kMaxCount = 1 << 24;

// Keys of versions are written as numbers are printed, so that none is there twice.
bool ParseVersion(std::string_view text, int64_t* number) {
  if (text.empty() || text.front() < '1' || text.front() > '9') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// A number that must be one of the model's versions.
void ReadVersionNumber(const JsonValue& value, const std::map<int64_t, DesiredVersion>& versions, int64_t* dst) {
  value.Integer(1, INT64_MAX, dst);
  if (!value.present() || versions.count(*dst) > 0) return;
  std::string known;
  for (const auto& [number, version] : versions) absl::StrAppend(&known, known.empty() ? "" : ", ", number);
  value.Refuse(absl::StrCat("one of the model's versions ", known));
}

void ReadBatching(const JsonValue& batching, BatchOptions* dst) {
  batching.Allow({"mode", "max_rows", "max_wait_us"});
  std::string mode = "off";
  const JsonValue named = batching.Member("mode");
  named.String(&mode);
  if (mode == "zero_wait") {
    dst->mode = BatchMode::kZeroWait;
  } else if (mode == "timed") {
    dst->mode = BatchMode::kTimed;
  } else if (mode != "off") {
    named.Refuse("\"off\", \"zero_wait\" or \"timed\"");
  }
  batching.Member("max_rows").Integer(1, kMaxCount, &dst->max_rows);
  batching.Member("max_wait_us").Integer(0, 60 * 1000 * 1000, &dst->max_wait_us);
}

void ReadConfig(const JsonValue& config, std::string* dst) {
  if (!config.present()) return;
  if (!config.json().is_object()) return config.Refuse("an object");
  for (const char* key : {"savedmodel_dir", "model_name", "model_version", "warmup_file_name", "cpusets", "batching"}) {
    if (config.Member(key).present()) {
      config.Member(key).Fault("set, expected nothing: the version says it by keys of its own");
    }
  }
  *dst = JsonText(config.json());
}

void ReadVersion(const JsonValue& value, DesiredVersion* dst) {
  value.Allow({"path", "config", "warmup_file", "cpuset", "batching", "limits", "priority", "traffic"});
  value.Required("path", "the folder of a SavedModel").String(&dst->path, /*nonempty=*/true);
  if (!dst->path.empty() && dst->path.front() != '/') value.Member("path").Refuse("a path that begins with '/'");
  ReadConfig(value.Member("config"), &dst->config);
  value.Member("warmup_file").String(&dst->warmup_file);
  value.Member("cpuset").String(&dst->cpuset);
  ReadBatching(value.Member("batching"), &dst->batching);
  const JsonValue limits = value.Member("limits");
  limits.Allow({"max_queue", "max_in_flight"});
  limits.Member("max_queue").Integer(1, kMaxCount, &dst->limits.max_queue);
  limits.Member("max_in_flight").Integer(1, kMaxCount, &dst->limits.max_in_flight);
  value.Member("priority").Integer(INT32_MIN, INT32_MAX, &dst->priority);
  value.Member("traffic").Boolean(&dst->traffic);
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
               DesiredModel* model) {
  value.Allow({"baseline", "labels", "request_log", "routing", "shadow", "versions"});
  if (!IsServingName(name)) return value.Fault(absl::StrCat("the name of a model, expected ", kNameRule));
  const JsonValue versions = value.Required("versions", "versions by their numbers");
  versions.ForEachMember([&](const std::string& key, const JsonValue& version) {
    int64_t number = 0;
    if (!ParseVersion(key, &number)) return version.Fault("the number of a version, expected 1 or more in decimal");
    if (!version.present()) return version.Refuse("an object");
    ReadVersion(version, &model->versions[number]);
  });
  const JsonValue baseline = value.Required("baseline", "the number of a version");
  ReadVersionNumber(baseline, model->versions, &model->baseline);
  const auto served = model->versions.find(model->baseline);
  if (served != model->versions.end() && !served->second.traffic) baseline.Refuse("a version with traffic");
  value.Member("labels").ForEachMember([&](const std::string& label, const JsonValue& number) {
    if (!IsServingName(label)) return number.Fault(absl::StrCat("a label, expected ", kNameRule));
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

// Cpusets that a host has instead of those of the versions, by "MODEL/VERSION".
void ReadHost(const JsonValue& host, bool is_this, DesiredState* state) {
  host.Allow({"cpusets"});
  host.Member("cpusets").ForEachMember([&](const std::string& key, const JsonValue& cpuset) {
    const size_t slash = key.rfind('/');
    int64_t number = 0;
    const auto model = state->models.find(key.substr(0, slash));
    if (slash == std::string::npos || !ParseVersion(std::string_view(key).substr(slash + 1), &number) ||
        model == state->models.end() || model->second.versions.count(number) == 0) {
      return cpuset.Fault("no version that is there, expected MODEL/VERSION");
    }
    std::string text;
    cpuset.String(&text);
    if (is_this && cpuset.present()) model->second.versions[number].cpuset = text;
  });
}

}  // namespace

bool IsServingName(std::string_view name) {
  const auto good = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  return !name.empty() && name.size() <= 128 && good(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return good(c) || c == '-' || c == '.'; });
}

std::string DesiredVersion::Identity() const { return absl::StrCat(path, "\n", warmup_file, "\n", config); }

absl::Status ParseDesiredState(std::string_view text, std::string_view host_id, DesiredState* state) {
  nlohmann::json document;
  if (absl::Status s = ParseStrictJson("desired.json", text, &document); !s.ok()) return s;
  absl::Status fault;
  const JsonValue root("desired.json: ", document, &fault);
  // First: of a later schema nothing else can be judged.
  int64_t schema = 0;
  root.Required("schema", absl::StrCat(kDesiredSchema)).Integer(kDesiredSchema, kDesiredSchema, &schema);
  root.Allow({"schema", "generation", "memory_limit_bytes", "maintenance_cpus", "layers", "models", "hosts"});
  DesiredState read;
  root.Required("generation", "a number that rises with every change").Integer(0, INT64_MAX, &read.generation);
  root.Member("memory_limit_bytes").Integer(0, INT64_MAX, &read.memory_limit_bytes);
  root.Member("maintenance_cpus").String(&read.maintenance_cpus);
  std::map<std::string, std::string> salts;
  root.Member("layers").ForEachMember([&](const std::string& name, const JsonValue& layer) {
    layer.Allow({"salt"});
    std::string salt = name;
    layer.Member("salt").String(&salt);
    salts[name] = salt;
  });
  root.Required("models", "models by their names").ForEachMember([&](const std::string& name, const JsonValue& model) {
    if (!model.present()) return model.Refuse("an object");
    ReadModel(model, salts, name, &read.models[name]);
  });
  root.Member("hosts").ForEachMember(
      [&](const std::string& id, const JsonValue& host) { ReadHost(host, id == host_id, &read); });
  if (fault.ok()) *state = std::move(read);
  return fault;
}

}  // namespace processor
