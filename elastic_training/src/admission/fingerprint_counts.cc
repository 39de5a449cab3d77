// SPDX-License-Identifier: Apache-2.0
#include "src/admission/fingerprint_counts.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

namespace elastic_training {
namespace {

constexpr uint16_t kLocked = 0x8000, kAgeMask = 0x7fff;

// 64 bytes for 21.4 keys are 23.93 bits a key; the locks of pieces take the rest of 24.
constexpr double kKeysPerBucket = 21.4;

// Locks a bucket by its head and releases it with a new age.
class BucketLock {
 public:
  explicit BucketLock(std::atomic<uint16_t>* head) : head_(head) {
    for (int spins = 0; (age_ = head_->fetch_or(kLocked, std::memory_order_acquire)) & kLocked; ++spins) {
      if (spins > 100) std::this_thread::yield();
    }
  }
  ~BucketLock() { head_->store(age_, std::memory_order_release); }

  // Returns how many half-lives have passed at an age. Of a clock that went back, none.
  int Passed(uint64_t age) const {
    const uint16_t passed = (static_cast<uint16_t>(age) - age_) & kAgeMask;
    return passed > kAgeMask / 2 ? 0 : std::min<int>(passed, 4);  // Counts have four bits.
  }
  // Sets the age, unless the clock went back, and returns how many half-lives have passed.
  int Advance(uint64_t age) {
    const int passed = Passed(age);
    if (passed != 0) age_ = static_cast<uint16_t>(age) & kAgeMask;
    return passed;
  }

 private:
  std::atomic<uint16_t>* head_;
  uint16_t age_;
};

// The low 12 bits of a hash and a count of 4 bits; a cell whose count is 0 is free.
uint16_t FingerprintOf(uint64_t hash) { return static_cast<uint16_t>(hash << 4); }

}  // namespace

FingerprintCounts::FingerprintCounts(uint64_t expected_keys)
    : buckets_(std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(expected_keys) / kKeysPerBucket))) {
  const uint64_t pieces = (buckets_ + kPieceBuckets - 1) / kPieceBuckets;
  try {
    table_ = std::make_unique<Bucket[]>(buckets_);
    pieces_ = std::vector<Piece>(pieces);
  } catch (const std::bad_alloc&) {
    throw std::invalid_argument("counting filter: no memory for " + std::to_string(expected_keys) +
                                " keys at 3 bytes, expected fewer expected_keys");
  }
}

uint32_t FingerprintCounts::Add(uint64_t hash, uint32_t occurrences, uint32_t limit, uint64_t age) {
  if (cutting_.load(std::memory_order_acquire)) KeepPiece(IndexOf(hash));
  Bucket& bucket = BucketOf(hash);
  const uint16_t fingerprint = FingerprintOf(hash);
  BucketLock lock(&bucket.head);
  if (const int halvings = lock.Advance(age)) {
    for (uint16_t& cell : bucket.cells) {
      const uint16_t count = (cell & 15) >> halvings;
      cell = count ? (cell & 0xfff0) | count : 0;
    }
  }
  int place = -1, lowest = 0;
  for (int i = 0; i < kCells; ++i) {
    const uint16_t cell = bucket.cells[i];
    if ((cell & 0xfff0) == fingerprint && (cell & 15)) place = i;
    if ((cell & 15) < (bucket.cells[lowest] & 15)) lowest = i;
  }
  const uint32_t before = place < 0 ? 0 : bucket.cells[place] & 15;
  const uint32_t count = std::min(before + std::min(occurrences, kHighestCount), kHighestCount);
  if (place < 0) place = lowest;
  if (count < limit) {
    bucket.cells[place] = fingerprint | static_cast<uint16_t>(count);
  } else if (before > 0) {
    bucket.cells[place] = 0;
  }
  return count;
}

uint32_t FingerprintCounts::Count(uint64_t hash, uint64_t age) const {
  Bucket& bucket = table_[IndexOf(hash)];
  const BucketLock lock(&bucket.head);
  for (const uint16_t cell : bucket.cells) {
    if ((cell & 0xfff0) == FingerprintOf(hash) && (cell & 15)) return (cell & 15) >> lock.Passed(age);
  }
  return 0;
}

void FingerprintCounts::Remove(uint64_t hash) {
  if (cutting_.load(std::memory_order_acquire)) KeepPiece(IndexOf(hash));
  Bucket& bucket = BucketOf(hash);
  const uint16_t fingerprint = FingerprintOf(hash);
  BucketLock lock(&bucket.head);
  for (uint16_t& cell : bucket.cells) {
    if ((cell & 0xfff0) == fingerprint) cell = 0;
  }
}

uint64_t FingerprintCounts::used() const {
  uint64_t used = 0;
  for (uint64_t index = 0; index < buckets_; ++index) {
    BucketLock lock(&table_[index].head);
    for (uint16_t cell : table_[index].cells) used += (cell & 15) != 0;
  }
  return used;
}

void FingerprintCounts::BeginCut() {
  for (Piece& piece : pieces_) {
    piece.kept.store(false, std::memory_order_relaxed);
    piece.copy.clear();
  }
  cutting_.store(true, std::memory_order_release);
}

void FingerprintCounts::CopyPiece(uint64_t piece, std::string* copy) {
  const uint64_t first = piece * kPieceBuckets, last = std::min(first + kPieceBuckets, buckets_);
  for (uint64_t index = first; index < last; ++index) {
    Bucket& bucket = table_[index];
    BucketLock lock(&bucket.head);
    const uint16_t age = bucket.head.load(std::memory_order_relaxed) & kAgeMask;
    copy->append(reinterpret_cast<const char*>(&age), sizeof age);
    copy->append(reinterpret_cast<const char*>(bucket.cells), sizeof bucket.cells);
  }
}

// Every writer passes here before its first change of a piece, so the copy is what BeginCut saw.
void FingerprintCounts::KeepPiece(uint64_t index) {
  Piece& piece = pieces_[index / kPieceBuckets];
  if (piece.kept.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(piece.mutex);
  if (piece.kept.load(std::memory_order_relaxed)) return;
  CopyPiece(index / kPieceBuckets, &piece.copy);
  piece.kept.store(true, std::memory_order_release);
}

void FingerprintCounts::EndCut() {
  for (Piece& piece : pieces_) {
    std::lock_guard<std::mutex> lock(piece.mutex);
    piece.copy = std::string();
    // For threads that have not seen yet that the cut ends.
    piece.kept.store(true, std::memory_order_release);
  }
  cutting_.store(false, std::memory_order_release);
}

void FingerprintCounts::Save(std::string* state) {
  state->reserve(state->size() + state_bytes());
  const bool cut = cutting_.load(std::memory_order_acquire);
  for (uint64_t piece = 0; piece < pieces_.size(); ++piece) {
    if (!cut) {
      CopyPiece(piece, state);
      continue;
    }
    KeepPiece(piece * kPieceBuckets);
    std::lock_guard<std::mutex> lock(pieces_[piece].mutex);
    state->append(pieces_[piece].copy);
    pieces_[piece].copy = std::string();
  }
  cutting_.store(false, std::memory_order_release);
}

void FingerprintCounts::Restore(std::string_view state) {
  for (uint64_t index = 0; index < buckets_; ++index) {
    const char* bytes = state.data() + index * sizeof(Bucket);
    uint16_t age;
    std::memcpy(&age, bytes, sizeof age);
    std::memcpy(table_[index].cells, bytes + sizeof age, sizeof table_[index].cells);
    table_[index].head.store(age & kAgeMask, std::memory_order_release);
  }
}

}  // namespace elastic_training
