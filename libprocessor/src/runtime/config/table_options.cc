// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/table_options.h"

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr char kExpectedMemory[] = "a size such as \"500MB\" or \"4GB\", or a number of bytes";
constexpr double kMostMemory = 1e18;

// Reads a size such as "4GB", in powers of ten.
bool ReadSize(std::string_view text, int64_t* bytes) {
  struct Unit {
    const char* name;
    double bytes;
  };
  for (const Unit& unit : {Unit{"KB", 1e3}, Unit{"MB", 1e6}, Unit{"GB", 1e9}, Unit{"TB", 1e12}}) {
    if (!absl::EndsWith(text, unit.name)) continue;
    double number;
    if (!absl::SimpleAtod(text.substr(0, text.size() - 2), &number)) return false;
    const double size = number * unit.bytes;
    if (!(size >= 1 && size <= kMostMemory)) return false;
    *bytes = static_cast<int64_t>(size);
    return true;
  }
  return false;
}

}  // namespace

const char* TableTierName(TableTier tier) {
  return tier == TableTier::kResident ? "resident" : tier == TableTier::kTiered ? "tiered" : "mapped";
}

void ReadTableOptions(const JsonValue& value, TableOptions* dst) {
  if (!value.present()) return;
  value.Allow({"tier", "memory", "early_reads", "share_folder"});
  int tier = static_cast<int>(dst->tier);
  value.Member("tier").Choice({"mapped", "tiered", "resident"}, &tier);
  dst->tier = static_cast<TableTier>(tier);
  const JsonValue early = value.Member("early_reads");
  early.Boolean(&dst->early_reads);
  if (early.present() && dst->tier != TableTier::kTiered) {
    early.Fault("set, expected nothing: only rows of tiered tables are read for requests");
  }
  const JsonValue folder = value.Member("share_folder");
  folder.String(&dst->share_folder);
  if (folder.present() && dst->tier != TableTier::kResident) {
    folder.Fault("set, expected nothing: only resident tables are shared");
  } else if (!dst->share_folder.empty() && dst->share_folder.front() != '/') {
    folder.Refuse("an absolute path");
  }
  const JsonValue memory = value.Member("memory");
  if (!memory.present()) {
    if (dst->tier == TableTier::kTiered) memory.Fault("missing, expected the memory of tiered tables, such as \"4GB\"");
    return;
  }
  if (memory.json().is_string()) {
    if (!ReadSize(memory.json().get_ref<const std::string&>(), &dst->memory)) memory.Refuse(kExpectedMemory);
  } else if (!ReadInteger(memory.json(), 1, static_cast<int64_t>(kMostMemory), &dst->memory)) {
    memory.Refuse(kExpectedMemory);
  }
  if (dst->tier != TableTier::kTiered) {
    memory.Fault(
        absl::StrCat("set, expected nothing: ", TableTierName(dst->tier), " tables take what their files have"));
  }
}

}  // namespace processor
