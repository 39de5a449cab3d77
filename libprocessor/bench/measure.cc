// SPDX-License-Identifier: Apache-2.0
#include "measure.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <numeric>
#include <thread>
#include <vector>

namespace processor::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * time.tv_usec; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Client {
  std::vector<float> latencies_us;
  std::exception_ptr failure;
};

void SendRequests(Engine* engine, size_t first, size_t num_requests, Clock::time_point end, Client* client) {
  try {
    size_t index = first;
    for (Clock::time_point before = Clock::now(); before < end;) {
      engine->Run(index);
      const Clock::time_point after = Clock::now();
      client->latencies_us.push_back(static_cast<float>(1e6 * Seconds(after - before)));
      before = after;
      if (++index == num_requests) index = 0;
    }
  } catch (...) {
    client->failure = std::current_exception();
  }
}

// Nearest rank: the smallest value that at least `share` of all do not exceed. `sorted` is not empty.
double Percentile(const std::vector<float>& sorted, double share) {
  const auto rank = static_cast<size_t>(share * static_cast<double>(sorted.size()) + 0.999999);
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

Round Measure(Engine* engine, size_t num_requests, size_t threads, double seconds) {
  if (std::optional<Round> round = engine->OwnClients(threads, seconds)) return *round;
  std::vector<Client> clients(threads);
  // Room for 100,000 requests/s and client, so that no round pays for a vector that grows.
  for (Client& client : clients) client.latencies_us.reserve(static_cast<size_t>(1e5 * seconds) + 16);
  std::vector<std::thread> workers;
  std::atomic<size_t> arrived{0};
  std::atomic<bool> go{false};
  Clock::time_point end;
  for (size_t i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      ++arrived;
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      SendRequests(engine, i * num_requests / threads, num_requests, end, &clients[i]);
    });
  }
  while (arrived.load() != threads) std::this_thread::yield();

  Round round;
  const double cpu_before = CpuSeconds();
  const Clock::time_point begin = Clock::now();
  end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  go.store(true, std::memory_order_release);
  for (std::thread& worker : workers) worker.join();
  round.seconds = Seconds(Clock::now() - begin);
  round.cpu_seconds = CpuSeconds() - cpu_before;

  std::vector<float> latencies;
  for (const Client& client : clients) {
    if (client.failure) std::rethrow_exception(client.failure);
    latencies.insert(latencies.end(), client.latencies_us.begin(), client.latencies_us.end());
  }
  std::sort(latencies.begin(), latencies.end());
  round.requests = latencies.size();
  if (latencies.empty()) return round;
  round.mean_us = std::accumulate(latencies.begin(), latencies.end(), 0.0) / static_cast<double>(latencies.size());
  round.p50_us = Percentile(latencies, 0.5);
  round.p99_us = Percentile(latencies, 0.99);
  round.max_us = latencies.back();
  return round;
}

}  // namespace processor::bench
