// SPDX-License-Identifier: Apache-2.0
// A row log beside a map that tells where its rows are and what they have, as a table and a checkpoint do.
#ifndef ELASTIC_TRAINING_TESTS_SSD_LOG_FIXTURE_H_
#define ELASTIC_TRAINING_TESTS_SSD_LOG_FIXTURE_H_

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/ssd/row_log.h"

namespace elastic_training {

constexpr size_t kLogValues = 7, kLogFileBytes = 32 << 10;

/// Settings with small files, so that tests use many.
inline LogSettings SmallLog(const std::string& folder) {
  LogSettings settings;
  settings.folder = folder;
  settings.values = kLogValues;
  settings.least_file_bytes = settings.most_file_bytes = kLogFileBytes;
  return settings;
}

/// A new folder of the working directory, which is the test's own.
inline std::string NewFolder(const std::string& name) {
  const std::string folder = "row_log_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

struct KnownRow {
  LogPlace place;
  uint32_t version;
};

class KnownLog {
 public:
  explicit KnownLog(const LogSettings& settings) : log(settings) {}

  static std::vector<float> Values(uint64_t key, uint32_t version) {
    std::vector<float> values(kLogValues);
    for (size_t i = 0; i < kLogValues; ++i) values[i] = static_cast<float>(key * 31 + version * 7 + i);
    return values;
  }

  void Put(uint64_t key) {
    const auto found = rows.find(key);
    const uint32_t version = found == rows.end() ? 1 : found->second.version + 1;
    const std::vector<float> values = Values(key, version);
    const LogPlace place = log.Append({key, version, version & 0xffff, 1, values.data()});
    if (found != rows.end()) log.Drop(found->second.place);
    rows[key] = {place, version};
  }

  void Remove(uint64_t key) {
    const auto found = rows.find(key);
    if (found == rows.end()) return;
    log.Drop(found->second.place);
    rows.erase(found);
  }

  size_t Reclaim(size_t most) {
    return log.Reclaim(most, [&](RowLog::Moved* moved, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        const auto found = rows.find(moved[i].key);
        if (found == rows.end() || found->second.place != moved[i].from) continue;
        found->second.place = moved[i].to;
        moved[i].taken = true;
      }
    });
  }

  void Step(std::mt19937_64* random, uint64_t keys) {
    for (int i = 0; i < 20; ++i) {
      const uint64_t key = (*random)() % keys;
      (*random)() % 8 == 0 ? Remove(key) : Put(key);
    }
    if (const size_t owed = log.Owed(); owed != 0) Reclaim(owed);
  }

  /// Returns how many rows are missing or have other values.
  size_t Wrong() const {
    std::vector<LogPlace> places;
    std::vector<uint64_t> keys;
    for (const auto& [key, row] : rows) {
      keys.push_back(key);
      places.push_back(row.place);
    }
    std::vector<float> values(keys.size() * kLogValues);
    std::vector<uint8_t> found(keys.size());
    log.Read(places.data(), keys.data(), keys.size(), values.data(), kLogValues, found.data());
    size_t wrong = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::vector<float> expected = Values(keys[i], rows.at(keys[i]).version);
      wrong += found[i] == 0 || !std::equal(expected.begin(), expected.end(), &values[i * kLogValues]);
    }
    return wrong;
  }

  /// Writes what a checkpoint of this instant needs to `path`, after the log has promised it.
  void Save(const std::string& path, uint64_t token) {
    nlohmann::json saved = {{"run", log.run()}, {"token", token}, {"rows", nlohmann::json::array()}};
    log.Pin(token);
    for (const auto& [key, row] : rows) saved["rows"].push_back({key, row.place, row.version});
    log.Promise(token);
    std::ofstream(path + ".part") << saved.dump();
    std::filesystem::rename(path + ".part", path);
    if (token > 1) log.Forget(token - 1);
  }

  /// Takes the rows of a checkpoint over, and returns its token.
  uint64_t Load(const std::string& path) {
    const nlohmann::json saved = nlohmann::json::parse(std::ifstream(path));
    rows.clear();
    log.Resume(saved["run"], saved["token"]);
    for (const auto& row : saved["rows"]) {
      rows[row[0]] = {row[1], row[2]};
      log.Adopt(row[1]);
    }
    log.EndResume();
    return saved["token"];
  }

  RowLog log;
  std::map<uint64_t, KnownRow> rows;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_TESTS_SSD_LOG_FIXTURE_H_
