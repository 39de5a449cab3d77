// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/delta_stores.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "src/runtime/follow/segment_store.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

// Names of folders that are in use, or how they begin, where the lineage is not known before the version is loaded.
struct UsedStores {
  std::set<std::string> names;
  std::set<std::string> prefixes;
  bool certain = true;

  bool Has(const std::string& name) const {
    return names.count(name) > 0 || std::any_of(prefixes.begin(), prefixes.end(),
                                                [&](const std::string& prefix) { return name.rfind(prefix, 0) == 0; });
  }
};

UsedStores StoresInUse(const DesiredState& desired, const Instances& instances) {
  UsedStores used;
  std::set<LoadKey> loaded;
  for (const auto& [id, instance] : instances.all()) {
    if (instance->settings.follow.empty()) continue;
    std::optional<FollowState> state;
    if (instance->version != nullptr) state = instance->version->model().following();
    if (!state.has_value()) {
      used.prefixes.insert(SegmentStore::NamePrefix(instance->settings.follow));
      continue;
    }
    used.names.insert(state->store.substr(state->store.rfind('/') + 1));
    loaded.insert(instance->Key());
  }
  for (const auto& [name, model] : desired.models) {
    for (const auto& [number, version] : model.versions) {
      // A faulty entry may not say what it follows.
      used.certain = used.certain && version.fault.ok();
      if (version.follow.empty() || loaded.count({name, number, version.Identity()}) > 0) continue;
      used.prefixes.insert(SegmentStore::NamePrefix(version.follow));
    }
  }
  return used;
}

}  // namespace

void DeltaStores::RemoveUnused(const DesiredState& desired, const Instances& instances) const {
  std::error_code error;
  if (!fs::exists(folder_, error)) return;
  const UsedStores used = StoresInUse(desired, instances);
  if (!used.certain) return;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // it is tried again with the next change
    if (!used.Has(it->path().filename().string())) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace processor
