// SPDX-License-Identifier: Apache-2.0
// How fast the kernels are, each against another way to compute the same, on one thread.
//
//   bench_kernels [--filter TEXT] [--seconds S] [--list 1]     a line of JSON for each case on stdout
//
// Each case checks its answer first. Its ways take turns of a few milliseconds for S seconds each, so that a change of
// the machine's speed hits all of them; `speed` is the median time of the last way over that of the first. The first
// decile (p10) is what runs take that nothing interrupts, for machines that are not idle.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "kernels/kernel_case.h"

namespace processor::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kTurnSeconds = 0.02;

std::vector<std::pair<std::string, MakeCase>>& Cases() {
  static auto* const cases = new std::vector<std::pair<std::string, MakeCase>>();
  return *cases;
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Nearest rank. `sorted` is not empty.
double Percentile(const std::vector<float>& sorted, double share) {
  const auto rank = static_cast<size_t>(share * static_cast<double>(sorted.size()) + 0.999999);
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

// Runs a way for a turn, at least once, and adds the time of each run [us].
void TakeTurn(const Way& way, std::vector<float>* run_us) {
  // What the other ways left in the caches is not this one's to pay for.
  way.run();
  const Clock::time_point begin = Clock::now();
  for (Clock::time_point before = begin; Seconds(before - begin) < kTurnSeconds;) {
    way.run();
    const Clock::time_point after = Clock::now();
    run_us->push_back(static_cast<float>(1e6 * Seconds(after - before)));
    before = after;
  }
}

std::string Measure(const std::string& name, const KernelCase& kernel_case, double seconds) {
  const std::vector<Way>& ways = kernel_case.ways;
  std::vector<std::vector<float>> run_us(ways.size());
  const int turns = std::max(1, static_cast<int>(seconds / kTurnSeconds));
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < ways.size(); ++i) TakeTurn(ways[i], &run_us[i]);
  }

  std::string line = "{\"case\": \"" + name + "\", \"ways\": [";
  char text[256];
  std::vector<double> medians, best;
  for (size_t i = 0; i < ways.size(); ++i) {
    std::sort(run_us[i].begin(), run_us[i].end());
    const double p50 = Percentile(run_us[i], 0.5), p99 = Percentile(run_us[i], 0.99);
    medians.push_back(p50);
    best.push_back(Percentile(run_us[i], 0.1));
    std::snprintf(text, sizeof(text),
                  "%s{\"way\": \"%s\", \"p10_us\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"runs\": %zu",
                  i == 0 ? "" : ", ", ways[i].name.c_str(), best.back(), p50, p99, run_us[i].size());
    line += text;
    if (kernel_case.flops > 0) {
      std::snprintf(text, sizeof(text), ", \"gflops\": %.1f", kernel_case.flops / p50 * 1e-3);
      line += text;
    }
    if (kernel_case.bytes > 0) {
      std::snprintf(text, sizeof(text), ", \"gb_per_s\": %.2f", kernel_case.bytes / p50 * 1e-3);
      line += text;
    }
    line += "}";
  }
  line += "]";
  if (medians.size() > 1) {
    std::snprintf(text, sizeof(text), ", \"speed\": %.3f, \"speed_p10\": %.3f", medians.back() / medians.front(),
                  best.back() / best.front());
    line += text;
  }
  return line + "}";
}

int Main(int argc, char** argv) {
  const Arguments arguments(argc, argv, {{"--filter", ""}, {"--seconds", "1"}, {"--list", "0"}});
  const double seconds = arguments.Number("--seconds");
  bool any = false;
  for (const auto& [name, make] : Cases()) {
    if (name.find(arguments.Text("--filter")) == std::string::npos) continue;
    any = true;
    if (arguments.Number("--list") != 0) {
      std::printf("%s\n", name.c_str());
      continue;
    }
    const KernelCase kernel_case = make();
    if (const std::string wrong = kernel_case.check(); !wrong.empty()) {
      std::fprintf(stderr, "bench_kernels: %s: wrong answer: %s\n", name.c_str(), wrong.c_str());
      return 1;
    }
    std::printf("%s\n", Measure(name, kernel_case, seconds).c_str());
    std::fflush(stdout);
  }
  if (any) return 0;
  std::fprintf(stderr, "bench_kernels: --filter: no case has '%s' in its name\n", arguments.Text("--filter").c_str());
  return 1;
}

}  // namespace

bool RegisterCase(const std::string& name, MakeCase make) {
  Cases().emplace_back(name, std::move(make));
  return true;
}

}  // namespace processor::bench

int main(int argc, char** argv) {
  try {
    return processor::bench::Main(argc, argv);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "bench_kernels: %s\n", fault.what());
    return 1;
  }
}
