// SPDX-License-Identifier: Apache-2.0
// Approximate counts of keys in 24 bits a key, which age.
//
// A key belongs to one bucket of a cache line: a head of 16 bits and 31 cells of 16 bits. A cell holds 12 bits of the key's
// hash and a count up to 15. Two keys share a count if they have the bucket and the 12 bits in common: a new key meets another's
// count with probability (cells in use) / 4096, 0.5 % at the expected number of keys. If a bucket is full, a new key takes
// the cell with the lowest count; with 21.4 keys a bucket expected, few keys meet a full one.
//
// Ageing: counts halve (rounded down) with every half-life. The head holds the half-life at which the bucket was
// last touched, so a bucket ages when it is touched next, and nothing ever sweeps.
#ifndef ELASTIC_TRAINING_ADMISSION_FINGERPRINT_COUNTS_H_
#define ELASTIC_TRAINING_ADMISSION_FINGERPRINT_COUNTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace elastic_training {

class FingerprintCounts {
 public:
  static constexpr uint32_t kHighestCount = 15;

  /// Takes 64 bytes for each 21.4 of `expected_keys` >= 1.
  /// \throws std::invalid_argument if there is not so much memory.
  explicit FingerprintCounts(uint64_t expected_keys);

  /// Adds to a key's count and returns it, at most 15. A count that reaches `limit` is removed.
  /// `age`: half-lives passed since the beginning of time. Any thread may call.
  uint32_t Add(uint64_t hash, uint32_t occurrences, uint32_t limit, uint64_t age);

  /// Returns a key's count at an age, and changes nothing. Any thread may call.
  uint32_t Count(uint64_t hash, uint64_t age) const;

  /// Removes a key's count.
  void Remove(uint64_t hash);

  /// Memory [bytes].
  size_t bytes() const { return buckets_ * sizeof(Bucket) + pieces_.size() * sizeof(Piece); }
  /// Length of what Save appends [bytes].
  size_t state_bytes() const { return buckets_ * sizeof(Bucket); }
  /// Number of cells in use; counts by reading all of them.
  uint64_t used() const;

  /// Keeps what Save shall return, while threads continue to add: each piece is copied before it first changes.
  /// Nothing else may be called meanwhile; it takes microseconds.
  void BeginCut();
  /// Drops what was kept since BeginCut. Threads may add meanwhile.
  void EndCut();
  /// Appends the counts, those of BeginCut if there was one, and ends it. Without one, the caller stops the writers.
  void Save(std::string* state);
  /// Takes over what Save appended, state_bytes() in number. Nothing else may be called meanwhile.
  void Restore(std::string_view state);

 private:
  static constexpr int kCells = 31;
  struct alignas(64) Bucket {
    // The highest bit locks the bucket, the others are the age modulo 2^15.
    std::atomic<uint16_t> head{0};
    uint16_t cells[kCells] = {};
  };
  static_assert(sizeof(Bucket) == 64);
  static constexpr uint64_t kPieceBuckets = 1024;

  // One piece of the buckets during a cut.
  struct Piece {
    std::mutex mutex;
    std::atomic<bool> kept{false};
    std::string copy;
  };

  Bucket& BucketOf(uint64_t hash) { return table_[IndexOf(hash)]; }
  uint64_t IndexOf(uint64_t hash) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(hash) * buckets_) >> 64);
  }
  void KeepPiece(uint64_t index);
  void CopyPiece(uint64_t piece, std::string* copy);

  uint64_t buckets_;
  std::unique_ptr<Bucket[]> table_;
  std::atomic<bool> cutting_{false};
  std::vector<Piece> pieces_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_ADMISSION_FINGERPRINT_COUNTS_H_
