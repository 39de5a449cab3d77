// SPDX-License-Identifier: Apache-2.0
// How fast the kernels are, each against another way to compute the same, on one thread.
//
//   bench_kernels [--filter TEXT] [--seconds S] [--list 1]     a line of JSON for each case on stdout
//
// Each case checks its answer first. Its ways take turns of a few milliseconds for S seconds each, so that a change of
// the machine's speed hits all of them; `speed` is the median time of the last way over that of the first. The first
// decile (p10) is what runs take that nothing interrupts, for machines that are not idle.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel_case.h"
#include "nlohmann/json.hpp"
#include "program.h"
#include "timing.h"

namespace processor::bench {
namespace {

constexpr double kTurnSeconds = 0.02;

std::vector<std::pair<std::string, MakeCase>>& Cases() {
  static auto* const cases = new std::vector<std::pair<std::string, MakeCase>>();
  return *cases;
}

struct Contestant {
  const Way* way;
  std::vector<float> run_us;  // of each run
};

// Runs a way for a turn, at least once.
void MeasureTurn(Contestant* contestant) {
  const Way& way = *contestant->way;
  // What the other ways left in the caches is not this one's to pay for.
  way.run();
  const Clock::time_point begin = Clock::now();
  for (Clock::time_point before = begin; Seconds(before - begin) < kTurnSeconds;) {
    way.run();
    const Clock::time_point after = Clock::now();
    contestant->run_us.push_back(static_cast<float>(1e6 * Seconds(after - before)));
    before = after;
  }
}

Report MeasureCase(const std::string& name, const KernelCase& kernel_case, double seconds) {
  std::vector<Contestant> contestants;
  for (const Way& way : kernel_case.ways) contestants.push_back({&way, {}});
  TakeTurns(std::max(1, static_cast<int>(seconds / kTurnSeconds)), &contestants, MeasureTurn);

  Report ways = Report::array();
  std::vector<double> medians, best;
  for (Contestant& contestant : contestants) {
    std::vector<float>& run_us = contestant.run_us;
    std::sort(run_us.begin(), run_us.end());
    medians.push_back(Percentile(run_us, 0.5));
    best.push_back(Percentile(run_us, 0.1));
    Report way = {{"way", contestant.way->name},
                  {"p10_us", Rounded(best.back(), 2)},
                  {"p50_us", Rounded(medians.back(), 2)},
                  {"p99_us", Rounded(Percentile(run_us, 0.99), 2)},
                  {"runs", run_us.size()}};
    if (kernel_case.flops > 0) way["gflops"] = Rounded(kernel_case.flops / medians.back() * 1e-3, 1);
    if (kernel_case.bytes > 0) way["gb_per_s"] = Rounded(kernel_case.bytes / medians.back() * 1e-3, 2);
    ways.push_back(std::move(way));
  }
  Report report = {{"case", name}, {"ways", std::move(ways)}};
  if (medians.size() > 1) {
    report["speed"] = Rounded(medians.back() / medians.front(), 3);
    report["speed_p10"] = Rounded(best.back() / best.front(), 3);
  }
  return report;
}

Report MeasureCases(const Arguments& arguments) {
  const double seconds = arguments.Number("--seconds");
  const std::string& filter = arguments.Text("--filter");
  bool any = false;
  for (const auto& [name, make] : Cases()) {
    if (name.find(filter) == std::string::npos) continue;
    any = true;
    if (arguments.Number("--list") != 0) {
      std::printf("%s\n", name.c_str());
      continue;
    }
    const KernelCase kernel_case = make();
    if (const std::string wrong = kernel_case.check(); !wrong.empty()) {
      throw std::runtime_error(name + ": wrong answer: " + wrong);
    }
    std::printf("%s\n", MeasureCase(name, kernel_case, seconds).dump().c_str());
    std::fflush(stdout);
  }
  if (!any) throw std::invalid_argument("--filter: no case has '" + filter + "' in its name");
  return nullptr;
}

}  // namespace

bool RegisterCase(const std::string& name, MakeCase make) {
  Cases().emplace_back(name, std::move(make));
  return true;
}

const Program kProgram = {{{"--filter", ""}, {"--seconds", "1"}, {"--list", "0"}}, MeasureCases};

}  // namespace processor::bench
