// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/cpuset.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace processor {
namespace {

// Room for machines beyond the 1,024 CPUs of cpu_set_t.
constexpr int kMaxCpus = 8192;

struct DynamicCpuSet {
  DynamicCpuSet() : set(CPU_ALLOC(kMaxCpus)), size(CPU_ALLOC_SIZE(kMaxCpus)) { CPU_ZERO_S(size, set); }
  ~DynamicCpuSet() { CPU_FREE(set); }
  cpu_set_t* set;
  size_t size;
};

bool ParseNumber(std::string_view text, int* number) {
  if (text.empty() || text.front() == '-') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size() && *number < kMaxCpus;
}

// Parses "7" or "0-3".
bool ParseRange(std::string_view text, CpuSet* cpus) {
  const std::pair<std::string_view, std::string_view> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  int first = 0;
  if (!ParseNumber(absl::StripAsciiWhitespace(ends.first), &first)) return false;
  int last = first;
  if (text.find('-') != std::string_view::npos && !ParseNumber(absl::StripAsciiWhitespace(ends.second), &last)) {
    return false;
  }
  if (last < first) return false;
  for (int cpu = first; cpu <= last; ++cpu) cpus->push_back(cpu);
  return true;
}

// The last move by PinMainThread().
struct LastMove {
  std::mutex mutex;
  CpuMove move;
};

LastMove& GetLastMove() {
  static LastMove* const last = new LastMove;
  return *last;
}

// Called with the mutex of `last` held. Returns no move if another program has moved the thread since.
CpuMove MoveInForce(const LastMove& last) {
  const bool in_force = last.move.to != last.move.from && CpusOfThread(static_cast<int>(getpid())) == last.move.to;
  return in_force ? last.move : CpuMove();
}

}  // namespace

CpuSet CpusOfThread(int thread_id) {
  DynamicCpuSet mask;
  CpuSet cpus;
  // The kernel's mask contains only CPUs of the thread's cgroup.
  if (sched_getaffinity(thread_id, mask.size, mask.set) != 0) return cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, mask.size, mask.set)) cpus.push_back(cpu);
  }
  return cpus;
}

CpuSet AllowedCpus() {
  CpuMove move = CurrentMove();
  return move.to.empty() ? CpusOfThread(static_cast<int>(getpid())) : std::move(move.from);
}

CpuMove CurrentMove() {
  std::lock_guard<std::mutex> lock(GetLastMove().mutex);
  return MoveInForce(GetLastMove());
}

void PinMainThread(const CpuSet& cpus) {
  const int main = static_cast<int>(getpid());
  std::lock_guard<std::mutex> lock(GetLastMove().mutex);
  CpuMove before = MoveInForce(GetLastMove());
  GetLastMove().move = {before.to.empty() ? CpusOfThread(main) : std::move(before.from), cpus};
  PinThread(main, cpus);
}

absl::Status ParseCpusets(std::string_view text, int num_groups, const CpuSet& allowed, std::vector<CpuSet>* groups) {
  std::vector<CpuSet> parsed;
  for (std::string_view group : absl::StrSplit(text, ';')) {
    CpuSet cpus;
    for (std::string_view range : absl::StrSplit(group, ',')) {
      if (!ParseRange(absl::StripAsciiWhitespace(range), &cpus)) {
        return absl::InvalidArgumentError(
            absl::StrCat("cpusets '", text, "': '", range, "' found, expected a CPU or a range, as in '0-3,8;4-7,9'"));
      }
    }
    std::sort(cpus.begin(), cpus.end());
    cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
    for (int cpu : cpus) {
      if (!std::binary_search(allowed.begin(), allowed.end(), cpu)) {
        return absl::InvalidArgumentError(
            absl::StrCat("cpusets '", text, "': CPU ", cpu,
                         " found, expected those that the process may use: ", FormatCpuset(allowed)));
      }
    }
    parsed.push_back(std::move(cpus));
  }
  if (static_cast<int>(parsed.size()) != num_groups) {
    return absl::InvalidArgumentError(absl::StrCat("cpusets '", text, "': ", parsed.size(), " groups found, expected ",
                                                   num_groups, ", one per session"));
  }
  *groups = std::move(parsed);
  return absl::OkStatus();
}

std::string FormatCpuset(const CpuSet& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (end > i) absl::StrAppend(&text, "-", cpus[end]);
    i = end + 1;
  }
  return text;
}

std::string FormatCpusets(const std::vector<CpuSet>& groups) {
  return absl::StrJoin(groups, ";", [](std::string* out, const CpuSet& cpus) { out->append(FormatCpuset(cpus)); });
}

void PinThread(int thread_id, const CpuSet& cpus) {
  if (cpus.empty()) return;
  DynamicCpuSet mask;
  for (int cpu : cpus) CPU_SET_S(cpu, mask.size, mask.set);
  sched_setaffinity(thread_id, mask.size, mask.set);
}

int ThreadId() { return static_cast<int>(syscall(SYS_gettid)); }

}  // namespace processor
