// SPDX-License-Identifier: Apache-2.0
// Tables whose rows tell how often they were updated, and copies of them that cuts make.
#ifndef ELASTIC_TRAINING_TESTS_CUT_CUT_FIXTURE_H_
#define ELASTIC_TRAINING_TESTS_CUT_CUT_FIXTURE_H_

#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/cut/model_changes.h"
#include "src/cut/model_cut.h"

namespace elastic_training {

constexpr size_t kDim = 4;

/// Returns the message of what `body` throws; "" if it throws nothing.
inline std::string MessageOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Adagrad from zeros: with gradients of 1 the accumulator is 0.1 plus the number of updates.
inline std::unique_ptr<ElasticTable> CountingTable(const std::string& name, const std::string& changes = "{}") {
  nlohmann::json config = {{"name", name},
                           {"dim", kDim},
                           {"seed", 1},
                           {"initializer", {{"kind", "zeros"}}},
                           {"optimizer", {{"kind", "adagrad"}, {"initial_accumulator", 0.0}}}};
  config.update(nlohmann::json::parse(changes));
  return std::make_unique<ElasticTable>(TableConfig::Parse(config.dump()));
}

/// Looks keys up at a time, and updates their rows with gradients of 1.
/// \return what Update() says of the gradients: -1, as they are finite.
inline int64_t Train(ElasticTable* table, const std::vector<uint64_t>& keys, uint32_t now = 0) {
  std::vector<float> rows(keys.size() * kDim), gradients(keys.size() * kDim, 1);
  std::vector<int64_t> places(keys.size());
  std::vector<int32_t> firsts(keys.size());
  LookupRequest lookup;
  lookup.keys = {keys.data(), nullptr, keys.size()};
  lookup.training = true;
  lookup.now = now;
  lookup.rows = rows.data();
  lookup.places = places.data();
  lookup.firsts = firsts.data();
  table->Lookup(lookup);
  const float rate = 0.1f;
  UpdateRequest update;
  update.keys = lookup.keys;
  update.places = places.data();
  update.firsts = firsts.data();
  update.gradients = gradients.data();
  update.hyper = &rate;
  return table->Update(update).not_finite;
}

inline void Evict(ElasticTable* table, const std::vector<uint64_t>& keys) {
  table->Evict({keys.data(), nullptr, keys.size()});
}

inline std::vector<uint64_t> Keys(uint64_t first, size_t count) {
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = first + i;
  return keys;
}

struct CutRow {
  uint32_t count, kind;
  std::vector<float> values;  // weights and, of checkpoints, slots; empty unless full
  bool operator==(const CutRow& other) const {
    return count == other.count && kind == other.kind && values == other.values;
  }
};

/// What checkpoints and servers make of cuts: keys and rows.
using Copy = std::map<uint64_t, CutRow>;

/// Reads a cut of a table to its end into a copy, and returns how many rows it had; a key that comes twice is an error.
inline size_t ReadInto(TableReader* cut, bool changes_only, Copy* copy, size_t bytes = 64 << 10) {
  if (!changes_only) copy->clear();
  const RowBlock evicted = cut->TakeEvicted();
  for (const uint64_t key : evicted.keys) copy->erase(key);
  const size_t columns = cut->columns();
  std::map<uint64_t, int> seen;
  for (;;) {
    const RowBlock block = cut->Read(bytes);
    if (block.empty()) break;
    const float* values = block.values.data();
    for (size_t i = 0; i < block.keys.size(); ++i) {
      CutRow row{block.meta[3 * i + 1], block.meta[3 * i + 2], {}};
      if (row.kind == static_cast<uint32_t>(RowKind::kFull)) {
        row.values.assign(values, values + columns);
        values += columns;
      }
      if (++seen[block.keys[i]] != 1) throw std::logic_error("a row came twice");
      (*copy)[block.keys[i]] = std::move(row);
    }
    if (values != block.values.data() + block.values.size()) throw std::logic_error("values are left over");
  }
  return seen.size();
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_TESTS_CUT_CUT_FIXTURE_H_
