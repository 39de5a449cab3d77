// SPDX-License-Identifier: Apache-2.0
// Keys of a call, and the memory that calls reuse.
#ifndef ELASTIC_TRAINING_STORAGE_KEY_BATCH_H_
#define ELASTIC_TRAINING_STORAGE_KEY_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/base/hash.h"
#include "src/storage/key_groups.h"
#include "src/storage/segment.h"

namespace elastic_training {

/// Keys that a caller owns.
struct KeyBatch {
  /// The keys, or the fingerprints of strings [count].
  const uint64_t* keys = nullptr;
  /// The strings [count]; null for a table of numbers.
  const std::string_view* texts = nullptr;
  size_t count = 0;

  KeyRef at(size_t position, uint64_t hash) const {
    return {keys[position], hash, texts == nullptr ? std::string_view() : texts[position]};
  }
  bool Equal(size_t a, size_t b) const { return keys[a] == keys[b] && (texts == nullptr || texts[a] == texts[b]); }
};

/// What a call computes on the way; each thread keeps one, since allocating it anew would cost page faults.
struct KeyScratch {
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> pending;
  KeyGroups groups;
  /// Of a group: an index of its distinct keys, their positions, occurrences and rows; and the other positions.
  std::vector<uint32_t> seen, distinct, occurrences, repeated;
  /// Of updates: sums of gradients of repeated keys, and where they are.
  std::vector<float> sums;
  std::vector<uint32_t> sum_of;
  /// Rows on SSD that the call has found: their positions, where they are, and what was read there.
  std::vector<uint32_t> on_ssd, ssd_places;
  std::vector<float> ssd_values;
  std::vector<RecordHeader> ssd_headers;
  /// Whether rows on SSD are now read one by one, with their segment locked, because some were not where they were found.
  bool one_by_one = false;

  void Hash(const KeyBatch& batch) {
    hashes.resize(batch.count);
    // What a call has left that ended with an error.
    on_ssd.clear();
    ssd_places.clear();
    one_by_one = false;
    for (size_t i = 0; i < batch.count; ++i) hashes[i] = HashKey(batch.keys[i]);
  }

  static KeyScratch& OfThread() {
    thread_local KeyScratch scratch;
    return scratch;
  }
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_KEY_BATCH_H_
