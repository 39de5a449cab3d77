// SPDX-License-Identifier: Apache-2.0
// Any text as desired.json: it is refused as a whole, or what is wrong in it is told of a version or a model, and what is
// left can be followed, is written down as text, and is the same when it is read back.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/host/desired/accepted_state.h"
#include "src/host/desired/desired_check.h"
#include "src/host/desired/version_config.h"

namespace {

using processor::AcceptDesired;
using processor::AcceptedState;
using processor::DesiredFault;
using processor::DesiredModel;
using processor::DesiredState;

constexpr char kFormer[] =
    R"({"schema": 1, "generation": 1, "models": {"m": {"baseline": 7, "versions": {"7": {"path": "/m/7"}}}}})";

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_desired: %s\n", what);
  std::abort();
}

void CheckModel(const DesiredModel& model) {
  const auto there = [&](int64_t number) { return model.versions.count(number) == 1; };
  Require(there(model.baseline), "a baseline that is not there");
  for (const auto& [label, number] : model.labels) Require(there(number), "a label of nothing");
  uint32_t end = 0;
  for (const auto& arm : model.routing.arms) {
    Require(there(arm.version) && arm.weight > 0 && arm.offset >= end, "an arm of nothing");
    end = arm.offset + arm.weight;
  }
  Require(end <= processor::kRoutingBuckets, "an arm beyond the buckets");
  for (const auto& shadow : model.shadow) Require(there(shadow.version), "a shadow of nothing");
  for (const auto& [number, version] : model.versions) {
    if (!version.fault.ok()) continue;
    processor::ModelConfig config;
    Require(version.path.front() == '/', "a path that is none");
    Require(processor::CheckVersionConfig(version, number, &config).ok(), "a configuration that cannot be loaded");
  }
}

void CheckFaults(const DesiredState& state) {
  std::set<std::pair<std::string, int64_t>> told;
  for (const DesiredFault& fault : state.faults) {
    Require(!fault.message.empty(), "a fault without words");
    if (fault.version > 0) told.emplace(fault.model, fault.version);
    if (fault.refuses_model()) Require(state.models.count(fault.model) == 0, "a model that is refused and there");
  }
  for (const auto& [name, model] : state.models) {
    for (const auto& [number, version] : model.versions) {
      Require(version.fault.ok() == (told.count({name, number}) == 0), "a fault that is not told");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  DesiredState state;
  const bool read = processor::ParseDesiredState(text, "host-0", &state).ok();
  std::vector<DesiredFault> faults;
  Require(processor::CheckDesired(text, {0, 1}, &faults).ok() == read, "a check that says something else");
  AcceptedState accepted;
  Require(AcceptDesired(text, kFormer, "host-0", &accepted).ok() == read, "a state that is read and not accepted");
  if (!read) return 0;
  CheckFaults(state);
  for (const auto& [name, model] : state.models) {
    CheckModel(model);
    Require(accepted.state.models.count(name) == 1, "a model that was lost");
  }
  AcceptedState again;
  Require(AcceptDesired(accepted.text, "", "host-0", &again).ok(), "a kept state that is refused");
  Require(again.state.models.size() == accepted.state.models.size() && again.text == accepted.text,
          "a kept state that says something else");
  Require(again.state.generation == state.generation, "another generation");
  return 0;
}
