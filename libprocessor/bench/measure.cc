// SPDX-License-Identifier: Apache-2.0
#include "engine.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "timing.h"

namespace processor::bench {
namespace {

struct Client {
  std::vector<float> latencies_us;
  std::exception_ptr failure;
};

void MoveToCpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw std::runtime_error("client_cpu: CPU " + std::to_string(cpu) + " cannot be used");
  }
}

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

}  // namespace

Round Measure(Engine* engine, size_t num_requests, size_t threads, double seconds, int client_cpu) {
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
      try {
        if (client_cpu >= 0) MoveToCpu(client_cpu);
      } catch (...) {
        clients[i].failure = std::current_exception();
      }
      ++arrived;
      while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
      if (!clients[i].failure) SendRequests(engine, i * num_requests / threads, num_requests, end, &clients[i]);
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
