// SPDX-License-Identifier: Apache-2.0
// Updates and reads random rows of a row log, found by an index in memory, and prints what that took as JSON.
//
//     bench_row_log FOLDER ROWS UPDATES READS
//
// Rows have 32 floats beside key, time and count: 144 bytes. CPU time is that of the process, so the writing thread is in it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/hash.h"
#include "src/ssd/row_log.h"
#include "src/storage/bucket_index.h"

namespace elastic_training {
namespace {

constexpr size_t kValues = 32, kBatch = 1024, kRowBytes = kValues * sizeof(float) + 16;

double Now(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Clocks {
  double cpu = Now(CLOCK_PROCESS_CPUTIME_ID), wall = Now(CLOCK_MONOTONIC);
  nlohmann::json Since(size_t rows) const {
    return {{"rows_per_cpu_s", static_cast<double>(rows) / (Now(CLOCK_PROCESS_CPUTIME_ID) - cpu)},
            {"rows_per_s", static_cast<double>(rows) / (Now(CLOCK_MONOTONIC) - wall)}};
  }
};

class IndexedLog {
 public:
  IndexedLog(const std::string& folder, uint32_t rows)
      : log_({folder, kValues}), index_(rows), keys_(rows), places_(rows), versions_(rows) {}

  void Add(uint32_t number) {
    keys_[number] = Mix(number);
    index_.Insert(HashKey(keys_[number]), number);
    places_[number] = Append(number);
  }

  void Update(uint64_t key) {
    const uint32_t number = Find(key);
    ++versions_[number];
    const LogPlace place = Append(number);
    log_.Drop(places_[number]);
    places_[number] = place;
  }

  /// Returns how many rows were reclaimed or passed.
  size_t Reclaim() {
    const size_t owed = log_.Owed();
    if (owed == 0) return 0;
    return log_.Reclaim(owed, [this](const RowLog::Row& row, LogPlace place) {
      const uint32_t number = Find(row.key);
      if (places_[number] != place) return;
      places_[number] = log_.Append(row, /*moves=*/true);
      log_.Drop(place);
    });
  }

  /// Returns how many rows have other values than they shall have.
  size_t Read(const std::vector<uint64_t>& keys) {
    found_.resize(keys.size());
    read_places_.resize(keys.size());
    values_.resize(keys.size() * kValues);
    for (size_t i = 0; i < keys.size(); ++i) read_places_[i] = places_[Find(keys[i])];
    log_.Read(read_places_.data(), keys.data(), keys.size(), values_.data(), kValues, found_.data());
    size_t wrong = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const float first = ValueOf(Find(keys[i]));
      wrong += found_[i] == 0 || values_[i * kValues] != first || values_[(i + 1) * kValues - 1] != first;
    }
    return wrong;
  }

  void Promise() {
    log_.Pin(1);
    log_.Promise(1);
  }
  nlohmann::json Stats() const { return log_.Stats(); }

 private:
  uint32_t Find(uint64_t key) const {
    return index_.Find(HashKey(key), [&](uint32_t number) { return keys_[number] == key; });
  }
  float ValueOf(uint32_t number) const { return static_cast<float>((number + versions_[number]) & 0xffffff); }
  LogPlace Append(uint32_t number) {
    float values[kValues];
    std::fill_n(values, kValues, ValueOf(number));
    return log_.Append({keys_[number], number, 1, 0, values});
  }

  RowLog log_;
  BucketIndex index_;
  std::vector<uint64_t> keys_;
  std::vector<LogPlace> places_, read_places_;
  std::vector<uint32_t> versions_;
  std::vector<float> values_;
  std::vector<uint8_t> found_;
};

nlohmann::json Measure(const std::string& folder, uint32_t rows, size_t updates, size_t reads) {
  std::filesystem::remove_all(folder);
  nlohmann::json result = {{"rows", rows}, {"row_bytes", kRowBytes}};
  IndexedLog log(folder, rows);
  const Clocks load;
  for (uint32_t number = 0; number < rows; ++number) log.Add(number);
  result["load"] = load.Since(rows);
  uint64_t draw = 1;
  std::vector<uint64_t> keys(kBatch);
  const auto draw_keys = [&] {
    for (uint64_t& key : keys) key = Mix(Mix(++draw) % rows);
  };
  // Until reclaiming has its steady state.
  const auto update = [&] {
    draw_keys();
    const double start = Now(CLOCK_MONOTONIC), cpu = Now(CLOCK_THREAD_CPUTIME_ID);
    for (const uint64_t key : keys) log.Update(key);
    const bool reclaims = log.Reclaim() != 0;
    return std::tuple(Now(CLOCK_MONOTONIC) - start, Now(CLOCK_THREAD_CPUTIME_ID) - cpu, reclaims);
  };
  for (size_t done = 0; done < 2 * rows; done += kBatch) update();
  std::vector<double> walls, cpus;
  double most_space = 0;
  const Clocks clocks;
  for (size_t done = 0; done < updates; done += kBatch) {
    const auto [wall, cpu, reclaims] = update();
    if (reclaims) walls.push_back(wall), cpus.push_back(cpu);
    if (walls.size() % 64 == 0)
      most_space = std::max(most_space, log.Stats()["bytes"].get<double>() / kRowBytes / rows);
  }
  log.Promise();
  result["update"] = clocks.Since(updates);
  for (const auto& [name, times] : {std::pair("batch_s", &walls), std::pair("batch_cpu_s", &cpus)}) {
    if (times->empty()) continue;
    std::sort(times->begin(), times->end());
    result[name] = {{"median", times->at(times->size() / 2)},
                    {"p99", times->at(times->size() * 99 / 100)},
                    {"worst", times->back()}};
  }
  result["space"] = most_space;
  size_t wrong = 0;
  const Clocks reading;
  for (size_t done = 0; done < reads; done += kBatch) {
    draw_keys();
    wrong += log.Read(keys);
  }
  result["read"] = reading.Since(reads);
  result["wrong"] = wrong;
  result["log"] = log.Stats();
  return result;
}

}  // namespace
}  // namespace elastic_training

int main(int count, char** arguments) {
  if (count != 5) {
    std::cerr << "bench_row_log FOLDER ROWS UPDATES READS\n";
    return 2;
  }
  try {
    std::cout << elastic_training::Measure(arguments[1], static_cast<uint32_t>(std::atoi(arguments[2])),
                                           std::strtoull(arguments[3], nullptr, 10),
                                           std::strtoull(arguments[4], nullptr, 10))
              << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
