// SPDX-License-Identifier: Apache-2.0
// Lists requests in the order in which they are to run: larger priority first, then earlier arrival. The links are in
// the entries, so that nothing here allocates or fails. The batcher owns the list, not the entries.
#ifndef PROCESSOR_RUNTIME_BATCHING_WAITING_LIST_H_
#define PROCESSOR_RUNTIME_BATCHING_WAITING_LIST_H_

#include <cstddef>
#include <cstdint>

namespace processor {

/// `Entry` has the members `int32_t priority`, `uint64_t sequence_`, `Entry* next_`, `Entry* previous_`, `bool
/// listed_`.
template <typename Entry>
class WaitingList {
 public:
  Entry* front() const { return front_; }
  bool empty() const { return front_ == nullptr; }
  size_t size() const { return size_; }

  /// Inserts an entry, nearly always at the back: equal priorities come in the order of their numbers.
  void Insert(Entry* entry) {
    Entry* before = back_;
    while (before != nullptr && GoesBefore(*entry, *before)) before = before->previous_;
    Entry* const after = before == nullptr ? front_ : before->next_;
    entry->previous_ = before;
    entry->next_ = after;
    (before == nullptr ? front_ : before->next_) = entry;
    (after == nullptr ? back_ : after->previous_) = entry;
    entry->listed_ = true;
    ++size_;
  }

  void Remove(Entry* entry) {
    (entry->previous_ == nullptr ? front_ : entry->previous_->next_) = entry->next_;
    (entry->next_ == nullptr ? back_ : entry->next_->previous_) = entry->previous_;
    entry->next_ = entry->previous_ = nullptr;
    entry->listed_ = false;
    --size_;
  }

 private:
  static bool GoesBefore(const Entry& a, const Entry& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.sequence_ < b.sequence_;
  }

  Entry* front_ = nullptr;
  Entry* back_ = nullptr;
  size_t size_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_WAITING_LIST_H_
