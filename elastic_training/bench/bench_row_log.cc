// SPDX-License-Identifier: Apache-2.0
// Updates and reads random rows of a row log, found by an index in memory, and prints what that took as JSON.
//
//     bench_row_log FOLDER ROWS UPDATES READS
//
// Rows have 32 floats beside key, time and count: 144 bytes. CPU time is that of the process, so the writing thread is in it.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
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
      : log_({folder, kValues}), index_(rows), known_(Reserve(rows * sizeof(Known))) {
    for (uint32_t number = 0; number < rows; ++number) {
      known_.get()[number] = {Mix(number), 0, 0};
      index_.Insert(HashKey(Mix(number)), number);
    }
  }

  /// Appends rows that are not there yet, `count` from number `first` on.
  void Add(uint32_t first, uint32_t count) {
    numbers_.resize(count);
    std::iota(numbers_.begin(), numbers_.end(), first);
    Append();
    for (size_t i = 0; i < count; ++i) known(i).place = new_places_[i];
  }

  /// Updates the rows of keys [kBatch].
  void Update(const uint64_t* keys) {
    Find(kBatch, [&](size_t i) { return keys[i]; });
    for (size_t i = 0; i < kBatch; ++i) ++known(i).version;
    Append();
    for (size_t i = 0; i < kBatch; ++i) std::swap(known(i).place, new_places_[i]);
    log_.Drop(new_places_.data(), new_places_.size());
  }

  /// Returns how many records were passed.
  size_t Reclaim() {
    const size_t owed = log_.Owed();
    if (owed == 0) return 0;
    return log_.Reclaim(owed, [this](RowLog::Moved* rows, size_t count) {
      Find(count, [&](size_t i) { return rows[i].key; });
      for (size_t i = 0; i < count; ++i) {
        LogPlace& place = known(i).place;
        rows[i].taken = place == rows[i].from;
        if (rows[i].taken) place = rows[i].to;
      }
    });
  }

  /// Returns how many of the rows of keys [kBatch] have other values than they shall have.
  size_t Read(const uint64_t* keys) {
    found_.resize(kBatch);
    read_places_.resize(kBatch);
    values_.resize(kBatch * kValues);
    Find(kBatch, [&](size_t i) { return keys[i]; });
    for (size_t i = 0; i < kBatch; ++i) read_places_[i] = known(i).place;
    log_.Read(read_places_.data(), keys, kBatch, values_.data(), kValues, found_.data());
    size_t wrong = 0;
    for (size_t i = 0; i < kBatch; ++i) {
      const float first = ValueOf(i);
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
  // What a table knows of a row on SSD.
  struct Known {
    uint64_t key;
    LogPlace place;
    uint32_t version;
  };

  // Of large pages, as the memory of tables is (src/storage/row_slabs.cc).
  static std::unique_ptr<Known, void (*)(void*)> Reserve(size_t bytes) {
    constexpr size_t kLargePage = size_t{2} << 20;
    const size_t whole = (bytes + kLargePage - 1) / kLargePage * kLargePage;
    void* const memory = std::aligned_alloc(kLargePage, whole);
    if (memory == nullptr) throw std::bad_alloc();
    madvise(memory, whole, MADV_HUGEPAGE);
    return {static_cast<Known*>(memory), std::free};
  }

  // Finds the numbers of rows as a table does: what the next ones need is on its way from memory.
  template <typename KeyAt>
  void Find(size_t count, const KeyAt& key_at) {
    numbers_.resize(count);
    hashes_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      hashes_[i] = HashKey(key_at(i));
      index_.Prefetch(hashes_[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      numbers_[i] = index_.Guess(hashes_[i]);
      if (numbers_[i] != kNoRow) __builtin_prefetch(&known(i), 1);
    }
    for (size_t i = 0; i < count; ++i) {
      const uint64_t key = key_at(i);
      if (numbers_[i] != kNoRow && known(i).key == key) continue;
      numbers_[i] = index_.Find(hashes_[i], [&](uint32_t number) { return known_.get()[number].key == key; });
    }
  }
  Known& known(size_t i) { return known_.get()[numbers_[i]]; }
  float ValueOf(size_t i) { return static_cast<float>((numbers_[i] + known(i).version) & 0xffffff); }
  // Appends the rows of numbers_ to new_places_.
  void Append() {
    const size_t count = numbers_.size();
    new_values_.resize(count * kValues);
    rows_.resize(count);
    new_places_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      float* const values = &new_values_[i * kValues];
      std::fill_n(values, kValues, ValueOf(i));
      rows_[i] = {known(i).key, numbers_[i], 1, 0, values};
    }
    log_.Append(rows_.data(), count, new_places_.data());
  }

  RowLog log_;
  BucketIndex index_;
  const std::unique_ptr<Known, void (*)(void*)> known_;
  std::vector<uint64_t> hashes_;
  std::vector<LogPlace> read_places_, new_places_;
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
  const auto draw_keys = [&](size_t count) {
    std::vector<uint64_t> keys((count + kBatch - 1) / kBatch * kBatch);
    for (uint64_t& key : keys) key = Mix(Mix(++draw) % rows);
    return keys;
  };
  const auto update = [&](const uint64_t* keys) {
    const double start = Now(CLOCK_MONOTONIC), cpu = Now(CLOCK_THREAD_CPUTIME_ID);
    log.Update(keys);
    const bool reclaims = log.Reclaim() != 0;
    return std::tuple(Now(CLOCK_MONOTONIC) - start, Now(CLOCK_THREAD_CPUTIME_ID) - cpu, reclaims);
  };
  // Until reclaiming has its steady state.
  std::vector<uint64_t> keys = draw_keys(2 * size_t{rows});
  for (size_t done = 0; done < keys.size(); done += kBatch) update(&keys[done]);
  keys = draw_keys(updates);
  std::vector<double> walls, cpus;
  double most_space = 0;
  const Clocks clocks;
  for (size_t done = 0; done < keys.size(); done += kBatch) {
    const auto [wall, cpu, reclaims] = update(&keys[done]);
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
  keys = draw_keys(reads);
  const Clocks reading;
  for (size_t done = 0; done < keys.size(); done += kBatch) wrong += log.Read(&keys[done]);
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
