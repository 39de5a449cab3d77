// SPDX-License-Identifier: Apache-2.0

// Runs a model that was compiled ahead of time (compiled.h is the compiler's output) as a peer of `bench_serving`,
// which compares its scores with stock TensorFlow's and measures the engines in turns.
//
//   harness INPUTS NAMES OUTPUT [arguments from bench_serving]
//
// INPUTS contains the raw memory of the inputs of each request, in the order of NAMES (a,b,c). The commands on standard
// input are "ready", "measure SECONDS" and "answer REQUEST", one per line; each is answered with a line of JSON.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "compiled.h"

namespace {

using Clock = std::chrono::steady_clock;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& one) { return static_cast<double>(one.tv_sec) + 1e-6 * one.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

double Percentile(const std::vector<double>& sorted, double percent) {
  const auto rank = static_cast<size_t>(std::ceil(percent / 100 * static_cast<double>(sorted.size())));
  return sorted[std::max<size_t>(rank, 1) - 1];
}

class Runner {
 public:
  Runner(const char* inputs, const std::string& names) {
    std::ifstream file(inputs, std::ios::binary);
    inputs_.assign(std::istreambuf_iterator<char>(file), {});
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, ',');) {
      order_.push_back(model_.LookupArgIndex("feed_" + name));
      if (order_.back() < 0) Fail("no input '" + name + "' in the compiled model");
      request_bytes_ += static_cast<size_t>(model_.arg_size(order_.back()));
    }
    if (request_bytes_ == 0 || inputs_.empty() || inputs_.size() % request_bytes_ != 0) {
      Fail(std::to_string(inputs_.size()) + " bytes of inputs, expected a multiple of " +
           std::to_string(request_bytes_));
    }
  }

  // Copying the inputs is part of a request, as in a server that reads them from a message.
  void Run(size_t request) {
    const char* next = inputs_.data() + request % (inputs_.size() / request_bytes_) * request_bytes_;
    for (const int index : order_) {
      const auto size = static_cast<size_t>(model_.arg_size(index));
      std::memcpy(model_.arg_data(static_cast<size_t>(index)), next, size);
      next += size;
    }
    if (!model_.Run()) Fail(model_.error_msg());
  }

  void Answer(size_t request, const char* output) {
    Run(request);
    const int index = model_.LookupResultIndex(std::string("fetch_") + output);
    if (index < 0) Fail(std::string("no output '") + output + "' in the compiled model");
    const auto* scores = static_cast<const float*>(model_.result_data(static_cast<size_t>(index)));
    const size_t rows = static_cast<size_t>(model_.result_size(index)) / sizeof(float);
    std::printf("{\"%s\": {\"shape\": [%zu, 1], \"values\": [", output, rows);
    for (size_t row = 0; row < rows; row++) std::printf("%s%.9g", row ? ", " : "", scores[row]);
    std::printf("]}}\n");
  }

  void Measure(double seconds) {
    std::vector<double> latencies;
    const double cpu = CpuSeconds();
    const auto begin = Clock::now();
    auto last = begin;
    while (last - begin < std::chrono::duration<double>(seconds)) {
      Run(latencies.size());
      const auto now = Clock::now();
      latencies.push_back(Microseconds(now - last));
      last = now;
    }
    const double total = Microseconds(last - begin) / 1e6;
    const double used = CpuSeconds() - cpu;
    std::sort(latencies.begin(), latencies.end());
    std::printf(
        "{\"seconds\": %.6f, \"requests\": %zu, \"mean_us\": %.3f, \"p50_us\": %.3f, \"p99_us\": %.3f, "
        "\"max_us\": %.3f, \"cpu_seconds\": %.6f}\n",
        total, latencies.size(), 1e6 * total / static_cast<double>(latencies.size()), Percentile(latencies, 50),
        Percentile(latencies, 99), latencies.back(), used);
  }

 private:
  [[noreturn]] static void Fail(const std::string& message) {
    std::fprintf(stderr, "harness: %s\n", message.c_str());
    std::exit(1);
  }

  Compiled model_;
  std::vector<char> inputs_;
  std::vector<int> order_;
  size_t request_bytes_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "harness: %d arguments, expected INPUTS NAMES OUTPUT\n", count - 1);
    return 1;
  }
  Runner runner(arguments[1], arguments[2]);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word;
    double value = 0;
    words >> word >> value;
    if (word == "measure" && value > 0) {
      runner.Measure(value);
    } else if (word == "answer") {
      runner.Answer(static_cast<size_t>(value), arguments[3]);
    } else {
      std::printf("{}\n");
    }
    std::fflush(stdout);
  }
  return 0;
}
