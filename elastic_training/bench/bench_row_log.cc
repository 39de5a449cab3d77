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
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/hash.h"
#include "src/ssd/row_log.h"
#include "src/storage/ssd_index.h"

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
      : log_({folder, kValues}), index_(rows + rows / 16, /*depth=*/0), versions_(rows) {}

  /// Appends rows that are not there yet, `count` from number `first` on.
  void Add(uint32_t first, uint32_t count) {
    numbers_.resize(count);
    std::iota(numbers_.begin(), numbers_.end(), first);
    Append(numbers_.data(), count);
    for (size_t i = 0; i < count; ++i) {
      index_.Insert({SsdIndex::BitsOf(HashKey(KeyOf(numbers_[i]))), places_[i], 0, 0, 0, 0});
    }
  }

  /// Updates rows [kBatch].
  void Update(const uint32_t* numbers) {
    for (size_t i = 0; i < kBatch; ++i) ++versions_[numbers[i]];
    Prefetch(kBatch, [&](size_t i) { return KeyOf(numbers[i]); });
    Append(numbers, kBatch);
    for (size_t i = 0; i < kBatch; ++i) {
      const uint32_t slot = index_.Find(hashes_[i]);
      const LogPlace before = index_.place(slot);
      index_.set_place(slot, places_[i]);
      places_[i] = before;
    }
    log_.Drop(places_.data(), kBatch);
  }

  /// Returns how many records were passed.
  size_t Reclaim() {
    const size_t owed = log_.Owed();
    if (owed == 0) return 0;
    return log_.Reclaim(owed, [this](RowLog::Moved* rows, size_t count) {
      Prefetch(count, [&](size_t i) { return rows[i].key; });
      for (size_t i = 0; i < count; ++i) {
        const uint32_t slot = index_.Find(hashes_[i], [&](uint32_t one) { return index_.place(one) == rows[i].from; });
        rows[i].taken = slot != SsdIndex::kNone;
        if (rows[i].taken) index_.set_place(slot, rows[i].to);
      }
    });
  }

  /// Returns how many of some rows [kBatch] have other values than they shall have.
  size_t Read(const uint32_t* numbers) {
    found_.resize(kBatch);
    places_.resize(kBatch);
    values_.resize(kBatch * kValues);
    keys_.resize(kBatch);
    for (size_t i = 0; i < kBatch; ++i) keys_[i] = KeyOf(numbers[i]);
    Prefetch(kBatch, [&](size_t i) { return keys_[i]; });
    for (size_t i = 0; i < kBatch; ++i) places_[i] = index_.place(index_.Find(hashes_[i]));
    log_.Read(places_.data(), keys_.data(), kBatch, values_.data(), kValues, found_.data());
    size_t wrong = 0;
    for (size_t i = 0; i < kBatch; ++i) {
      const float first = ValueOf(numbers[i]);
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
  static uint64_t KeyOf(uint32_t number) { return Mix(number); }
  float ValueOf(uint32_t number) const { return static_cast<float>((number + versions_[number]) & 0xffffff); }

  // Computes hashes, and has what they need on its way from memory, as a table does.
  template <typename KeyAt>
  void Prefetch(size_t count, const KeyAt& key_at) {
    hashes_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      hashes_[i] = HashKey(key_at(i));
      index_.Prefetch(hashes_[i]);
    }
  }
  // Appends rows to places_.
  void Append(const uint32_t* numbers, size_t count) {
    new_values_.resize(count * kValues);
    rows_.resize(count);
    places_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      float* const values = &new_values_[i * kValues];
      std::fill_n(values, kValues, ValueOf(numbers[i]));
      rows_[i] = {KeyOf(numbers[i]), numbers[i], 1, 0, values};
    }
    log_.Append(rows_.data(), count, places_.data());
  }

  RowLog log_;
  SsdIndex index_;
  // What a row must have.
  std::vector<uint8_t> versions_;
  std::vector<uint64_t> hashes_, keys_;
  std::vector<LogPlace> places_;
  std::vector<uint32_t> numbers_;
  std::vector<float> values_, new_values_;
  std::vector<RowLog::Row> rows_;
  std::vector<uint8_t> found_;
};

// All files of rows, also those that are made ahead or wait to be removed.
double BytesOf(const std::string& folder) {
  uintmax_t sum = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::error_code gone;
    const uintmax_t size = file.path().extension() == LogFile::kSuffix ? file.file_size(gone) : 0;
    if (!gone) sum += size;
  }
  return static_cast<double>(sum);
}

nlohmann::json Measure(const std::string& folder, uint32_t rows, size_t updates, size_t reads) {
  std::filesystem::remove_all(folder);
  nlohmann::json result = {{"rows", rows}, {"row_bytes", kRowBytes}};
  IndexedLog log(folder, rows);
  const Clocks load;
  for (uint32_t number = 0; number < rows; number += kBatch) log.Add(number, std::min<uint32_t>(kBatch, rows - number));
  result["load"] = load.Since(rows);
  uint64_t draw = 1;
  // Whole batches.
  const auto draw_rows = [&](size_t count) {
    std::vector<uint32_t> numbers((count + kBatch - 1) / kBatch * kBatch);
    for (uint32_t& number : numbers) number = Mix(++draw) % rows;
    return numbers;
  };
  const auto update = [&](const uint32_t* numbers) {
    const double start = Now(CLOCK_MONOTONIC), cpu = Now(CLOCK_THREAD_CPUTIME_ID);
    log.Update(numbers);
    const bool reclaims = log.Reclaim() != 0;
    return std::tuple(Now(CLOCK_MONOTONIC) - start, Now(CLOCK_THREAD_CPUTIME_ID) - cpu, reclaims);
  };
  // Until reclaiming has its steady state.
  std::vector<uint32_t> numbers = draw_rows(2 * size_t{rows});
  for (size_t done = 0; done < numbers.size(); done += kBatch) update(&numbers[done]);
  numbers = draw_rows(updates);
  std::vector<double> walls, cpus;
  double most_space = 0;
  const Clocks clocks;
  for (size_t done = 0; done < numbers.size(); done += kBatch) {
    const auto [wall, cpu, reclaims] = update(&numbers[done]);
    if (reclaims) walls.push_back(wall), cpus.push_back(cpu);
    if (done / kBatch % 256 == 0) most_space = std::max(most_space, BytesOf(folder) / kRowBytes / rows);
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
  numbers = draw_rows(reads);
  const Clocks reading;
  for (size_t done = 0; done < numbers.size(); done += kBatch) wrong += log.Read(&numbers[done]);
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
