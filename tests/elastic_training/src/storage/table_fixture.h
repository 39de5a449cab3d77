// SPDX-License-Identifier: Apache-2.0
// A table with the calls that tests make.
#ifndef ELASTIC_TRAINING_TESTS_STORAGE_TABLE_FIXTURE_H_
#define ELASTIC_TRAINING_TESTS_STORAGE_TABLE_FIXTURE_H_

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/cut/model_changes.h"

namespace elastic_training {

/// Returns a table of 4 columns; `changes` replaces fields of its JSON.
inline std::unique_ptr<ElasticTable> MakeTable(const std::string& changes = "{}") {
  nlohmann::json config = {{"name", "test"}, {"dim", 4}, {"seed", 1}, {"optimizer", {{"kind", "sgd"}}}};
  config.update(nlohmann::json::parse(changes));
  return std::make_unique<ElasticTable>(TableConfig::Parse(config.dump()));
}

/// A batch, and what a lookup returns for it.
struct Batch {
  explicit Batch(std::vector<uint64_t> numbers) : numbers(std::move(numbers)) {}
  /// Strings, with given numbers in the place of their fingerprints.
  Batch(std::vector<uint64_t> fingerprints, std::vector<std::string_view> strings)
      : numbers(std::move(fingerprints)), strings(std::move(strings)) {}

  KeyBatch keys() const { return {numbers.data(), strings.empty() ? nullptr : strings.data(), numbers.size()}; }

  std::vector<float>& Lookup(ElasticTable* table, bool training, uint32_t now = 0) {
    rows.assign(numbers.size() * table->layout().dim, -1);
    places.assign(numbers.size(), -2);
    firsts.assign(numbers.size(), -2);
    LookupRequest request;
    request.keys = keys();
    request.training = training;
    request.now = now;
    request.rows = rows.data();
    request.places = places.data();
    request.firsts = firsts.data();
    table->Lookup(request);
    return rows;
  }

  UpdateResult Update(ElasticTable* table, const std::vector<float>& gradients, float learning_rate = 1) const {
    UpdateRequest request;
    request.keys = keys();
    request.places = places.data();
    request.firsts = firsts.data();
    request.gradients = gradients.data();
    request.hyper = &learning_rate;
    return table->Update(request);
  }

  std::vector<uint64_t> numbers;
  std::vector<std::string_view> strings;
  std::vector<float> rows;
  std::vector<int64_t> places;
  std::vector<int32_t> firsts;
};

/// Returns keys first, first + 1, ...
inline std::vector<uint64_t> Numbers(uint64_t first, size_t count) {
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = first + i;
  return keys;
}

/// Calls `visit` for all rows.
template <typename Visit>
void VisitAll(const ElasticTable& table, const Visit& visit) {
  uint64_t cursor = 0;
  do cursor = table.Visit(cursor, visit);
  while (cursor != 0);
}

/// What a publisher reads of a table.
struct Changes {
  std::map<uint64_t, RowKind> rows;
  std::set<uint64_t> evicted;  // Some may be back, among the rows.
};

/// Begins a cut of the changes since the one before, and reads it to its end.
inline Changes ChangesOf(ElasticTable* table) {
  Changes changes;
  ModelChanges cut({table}, size_t{64} << 20);
  for (const uint64_t key : cut.at(0).TakeEvicted().keys) changes.evicted.insert(key);
  for (RowBlock block; !(block = cut.at(0).Read(1 << 20)).empty();) {
    for (size_t i = 0; i < block.keys.size(); ++i) {
      changes.rows[block.keys[i]] = static_cast<RowKind>(block.meta[3 * i + 2]);
    }
  }
  cut.End(true);
  return changes;
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_TESTS_STORAGE_TABLE_FIXTURE_H_
