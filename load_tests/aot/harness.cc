// SPDX-License-Identifier: Apache-2.0

// Runs a W2 that was compiled ahead of time (compiled.h is what the compiler wrote) on one thread, and says how fast.
//
//   harness INPUTS ANSWERS ROUNDS SECONDS
//
// Answers are compared first: one further from stock TensorFlow's than 1e-5 + 1e-5·|b| ends the run with status 2.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "compiled.h"

namespace {

using Clock = std::chrono::steady_clock;

std::vector<char> Read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "harness: %d arguments, expected INPUTS ANSWERS ROUNDS SECONDS\n", count - 1);
    return 1;
  }
  const std::vector<char> inputs = Read(arguments[1]);
  const std::vector<char> answers = Read(arguments[2]);
  const int rounds = std::atoi(arguments[3]);
  const double seconds = std::atof(arguments[4]);

  Compiled model;
  std::vector<int> order{model.LookupArgIndex("feed_dense")};
  for (int i = 1; i <= 26; i++) order.push_back(model.LookupArgIndex("feed_C" + std::to_string(i)));
  size_t request_bytes = 0;
  for (const int index : order) {
    if (index < 0) {
      std::fprintf(stderr, "harness: an input is missing in the compiled model\n");
      return 1;
    }
    request_bytes += static_cast<size_t>(model.arg_size(index));
  }
  const size_t requests = inputs.size() / request_bytes;
  if (requests == 0 || inputs.size() % request_bytes != 0) {
    std::fprintf(stderr, "harness: %zu bytes of inputs, expected a multiple of %zu\n", inputs.size(), request_bytes);
    return 1;
  }
  const size_t rows = answers.size() / sizeof(float) / requests;

  // Copying the inputs is part of a request, as it is where a server reads them from a message.
  const auto run = [&](size_t request) {
    const char* next = inputs.data() + request * request_bytes;
    for (const int index : order) {
      const auto size = static_cast<size_t>(model.arg_size(index));
      std::memcpy(model.arg_data(static_cast<size_t>(index)), next, size);
      next += size;
    }
    return model.Run();
  };

  double largest = 0;
  for (size_t request = 0; request < requests; request++) {
    if (!run(request)) {
      std::fprintf(stderr, "harness: %s\n", model.error_msg().c_str());
      return 1;
    }
    const auto* scores = static_cast<const float*>(model.result_data(0));
    for (size_t row = 0; row < rows; row++) {
      float expected = 0;
      std::memcpy(&expected, answers.data() + (request * rows + row) * sizeof(float), sizeof(float));
      const double difference = std::fabs(static_cast<double>(scores[row]) - expected);
      largest = std::max(largest, difference);
      if (!(difference <= 1e-5 + 1e-5 * std::fabs(expected))) {
        std::fprintf(stderr, "harness: score %g, expected %g\n", scores[row], expected);
        return 2;
      }
    }
  }

  std::printf("{\"max_abs_difference\": %g, \"rounds\": [", largest);
  for (int round = 0; round < rounds; round++) {
    std::vector<double> latencies;
    const double cpu = CpuSeconds();
    const auto begin = Clock::now();
    auto last = begin;
    while (last - begin < std::chrono::duration<double>(seconds)) {
      run(latencies.size() % requests);
      const auto now = Clock::now();
      latencies.push_back(Microseconds(now - last));
      last = now;
    }
    const double total = Microseconds(last - begin) / 1e6;
    const double used = CpuSeconds() - cpu;
    const auto answered = static_cast<double>(latencies.size());
    std::sort(latencies.begin(), latencies.end());
    std::printf(
        "%s{\"requests_per_s\": %.2f, \"mean_us\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f, \"cpu_s_per_1000\": %.6f}",
        round ? ", " : "", answered / total, 1e6 * total / answered, Percentile(latencies, 50),
        Percentile(latencies, 99), 1000 * used / answered);
  }
  std::printf("]}\n");
  return 0;
}
