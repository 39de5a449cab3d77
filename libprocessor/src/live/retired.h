// SPDX-License-Identifier: Apache-2.0
// What readers may still use although nothing leads to it any more.
#ifndef PROCESSOR_LIVE_RETIRED_H_
#define PROCESSOR_LIVE_RETIRED_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace processor {

/// Makes room for more elements, and for as many again, so that all growth together costs as much as the last one.
template <typename T>
void ReserveMore(size_t more, std::vector<T>* elements) {
  const size_t needed = elements->size() + more;
  if (needed > elements->capacity()) elements->reserve(2 * needed);
}

/// Keeps things, each until all readers of its generation have left. One thread uses it.
template <typename T>
class Retired {
 public:
  bool empty() const { return released_ == things_.size(); }
  size_t size() const { return things_.size() - released_; }
  size_t bytes() const { return things_.capacity() * sizeof(things_[0]); }

  /// Makes the next `more` calls of Add() need no memory. \throws std::bad_alloc
  void Reserve(size_t more) { ReserveMore(more, &things_); }

  /// Adds a thing that readers of generation `generation`, the newest one, may have found.
  void Add(uint64_t generation, T thing) { things_.emplace_back(generation, std::move(thing)); }

  /// Passes on what only readers of generations before `oldest` may have found.
  template <typename Take>
  void Release(uint64_t oldest, Take&& take) {
    for (; released_ < things_.size() && things_[released_].first < oldest; ++released_) {
      take(std::move(things_[released_].second));
    }
    if (2 * released_ < things_.size()) return;
    things_.erase(things_.begin(), things_.begin() + static_cast<std::ptrdiff_t>(released_));
    released_ = 0;
    if (things_.empty() && bytes() > kKeptBytes) things_.shrink_to_fit();
  }

 private:
  static constexpr size_t kKeptBytes = size_t{64} << 10;

  std::vector<std::pair<uint64_t, T>> things_;  // ascending generations
  size_t released_ = 0;                         // so many at its beginning are gone
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_RETIRED_H_
