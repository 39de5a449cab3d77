// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/desired_state.h"

#include "absl/strings/str_cat.h"
#include "src/base/json_value.h"
#include "src/host/desired/desired_keys.h"
#include "src/host/desired/desired_model.h"

namespace processor {
namespace {

constexpr double kMostLoadSeconds = 1e6;
constexpr char kAllHosts[] = "*";

// Returns the status with a name such as "NOT_FOUND"; OK if the name is unknown.
absl::StatusCode StatusCodeOf(std::string_view name) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  return absl::StatusCode::kOk;
}

// Reads the versions that the control plane refused. A fault there affects nothing that is served.
void ReadRefused(const JsonValue& versions, const std::string& model, DesiredState* state) {
  versions.ForEachMember([&](const std::string& key, const JsonValue& version) {
    absl::Status fault;
    const JsonValue own = version.Apart(&fault);
    int64_t number = 0;
    std::string code, message;
    own.Allow({"status", "message"});
    const JsonValue named = own.Required("status", "the name of a status");
    named.String(&code);
    own.Required("message", "why it was refused").String(&message);
    const absl::StatusCode status = StatusCodeOf(code);
    if (!IsServingName(model)) own.Fault(absl::StrCat("the name of a model, expected ", kServingNameRule));
    if (!ParseVersionNumber(key, &number)) own.Fault("the number of a version, expected 1 or more in decimal");
    if (named.present() && status == absl::StatusCode::kOk) named.Refuse("the name of a status, and not OK");
    if (fault.ok()) {
      state->refused[model][number] = absl::Status(status, message);
    } else {
      state->faults.push_back({"", 0, std::string(fault.message())});
    }
  });
}

// Reads what is for one host: whether it is drained, and its own cpusets by "MODEL/VERSION", which replace those of the
// versions. An absent version needs no CPUs.
void ReadHost(const JsonValue& host, bool is_this, DesiredState* state) {
  host.Allow(DesiredHostKeys());
  bool drained = false;
  host.Member("drained").Boolean(&drained);
  if (is_this) state->drained |= drained;
  host.Member("cpusets").ForEachMember([&](const std::string& key, const JsonValue& cpuset) {
    const size_t slash = key.rfind('/');
    int64_t number = 0;
    const auto model = state->models.find(key.substr(0, slash));
    std::string text;
    cpuset.String(&text);
    if (slash == std::string::npos || !ParseVersionNumber(std::string_view(key).substr(slash + 1), &number) ||
        model == state->models.end() || model->second.versions.count(number) == 0) {
      state->faults.push_back(
          {"", 0, absl::StrCat(cpuset.name(), ": no version that is there, expected MODEL/VERSION")});
    } else if (is_this && cpuset.present()) {
      model->second.versions[number].cpuset = text;
    }
  });
}

// Groups faults of form by what they affect: a version, a model, or the whole file ("").
FormFaults SortFormFaults(const std::vector<JsonFault>& faults, std::string* whole) {
  FormFaults sorted;
  for (const JsonFault& fault : faults) {
    std::vector<std::string> path = fault.path;
    const bool in_model = path.size() >= 2 && path[0] == "models";
    const bool in_version = path.size() >= 4 && in_model && path[2] == "versions";
    if (!in_model) {
      if (whole->empty()) *whole = fault.what;
      continue;
    }
    const size_t owner = in_version ? 4 : 2;
    // The key of the version or model that contains the fault.
    const std::string key = path.size() > owner ? absl::StrCat("key '", path[owner], "': ") : "";
    path.resize(owner);
    sorted.emplace(std::move(path), key + fault.what);
  }
  return sorted;
}

}  // namespace

std::string DesiredVersion::Identity() const {
  if (!fault.ok()) return absl::StrCat("\n", fault.message());
  std::string tier;
  if (tables.tier == TableTier::kTiered) {
    tier = absl::StrCat("\ntiered ", tables.memory, tables.early_reads ? "" : ", no early reads");
  }
  if (tables.tier == TableTier::kResident) tier = absl::StrCat("\nresident ", tables.share_folder);
  return absl::StrCat(path, "\n", warmup_file, "\n", follow, "\n", config, tier);
}

absl::Status ParseDesiredState(std::string_view text, std::string_view host_id, DesiredState* state) {
  nlohmann::json document;
  std::vector<JsonFault> form_faults;
  if (absl::Status s = ParseJson("desired.json", text, &document, &form_faults); !s.ok()) return s;
  std::string spoiled;
  const FormFaults form = SortFormFaults(form_faults, &spoiled);
  if (!spoiled.empty()) return absl::InvalidArgumentError(absl::StrCat("desired.json: ", spoiled));
  absl::Status fault;
  const JsonValue root("desired.json: ", document, &fault);
  // The schema comes first: a later one cannot be checked further.
  int64_t schema = 0;
  root.Required("schema", absl::StrCat(kDesiredSchema)).Integer(kDesiredSchema, kDesiredSchema, &schema);
  root.Allow(DesiredStateKeys());
  DesiredState read;
  root.Required("generation", "a number that rises with every change").Integer(0, INT64_MAX, &read.generation);
  root.Member("waiting").String(&read.waiting, /*nonempty=*/true);
  root.Member("memory_limit_bytes").Integer(0, INT64_MAX, &read.memory_limit_bytes);
  root.Member("maintenance_cpus").String(&read.maintenance_cpus);
  root.Member("load_timeout_seconds").Number(0, kMostLoadSeconds, &read.load_timeout_s);
  std::map<std::string, std::string> salts;
  root.Member("layers").ForEachMember([&](const std::string& name, const JsonValue& layer) {
    layer.Allow({"salt"});
    std::string salt = name;
    layer.Member("salt").String(&salt);
    salts[name] = salt;
  });
  root.Required("models", "models by their names").ForEachMember([&](const std::string& name, const JsonValue& model) {
    ReadDesiredModel(model, salts, name, form, &read);
  });
  root.Member("refused").ForEachMember(
      [&](const std::string& name, const JsonValue& versions) { ReadRefused(versions, name, &read); });
  root.Member("hosts").ForEachMember(
      [&](const std::string& id, const JsonValue& host) { ReadHost(host, id == host_id || id == kAllHosts, &read); });
  if (fault.ok()) *state = std::move(read);
  return fault;
}

}  // namespace processor
