// SPDX-License-Identifier: Apache-2.0
// Prefetches rows of tables while the rows before them are computed.
#ifndef PROCESSOR_KERNELS_ROW_FETCHER_H_
#define PROCESSOR_KERNELS_ROW_FETCHER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/kernels/row_kernels.h"

namespace processor {

/// Prefetches a number of cache lines ahead of a reader, who reads several runs of rows in order. One thread uses it.
class RowFetcher {
 public:
  struct Run {
    RowSource source;
    uint32_t bytes;           // of a row
    const uint32_t* numbers;  // [n]
    size_t n;

    int64_t lines() const { return (bytes + kLine - 1) / kLine; }
  };

  static constexpr uint32_t kLine = 64;
  /// The distance in lines. A core has about 50 memory reads in flight; early ones do no harm.
  static constexpr int64_t kLinesAhead = 64;

  /// \param runs  [n], in the order in which they are read.
  RowFetcher(const Run* runs, size_t n) : reading_(runs), fetching_(runs), end_(runs + n) { Fetch(); }

  /// Returns the rows of the current run that the reader may read between two calls of Advance().
  static size_t RowsAtOnce(const Run& run) { return std::max<int64_t>(1, kLinesAhead / 4 / run.lines()); }

  /// Returns the current run of the reader, who must go through all runs, also empty ones, by NextRun().
  const Run& run() const { return *reading_; }

  /// Tells that the reader has read `n` more rows of the current run.
  void Advance(size_t n) {
    position_ += n;
    ahead_ -= static_cast<int64_t>(n) * reading_->lines();
    if (fetching_ == reading_ && fetched_ < position_) {
      fetched_ = position_;
      ahead_ = 0;
    }
    Fetch();
  }

  /// Tells that the reader has read the current run.
  void NextRun() {
    if (fetching_ == reading_) {
      ++fetching_;
      fetched_ = 0;
      ahead_ = 0;
    }
    ++reading_;
    position_ = 0;
  }

 private:
  void Fetch() {
    for (; fetching_ != end_; ++fetching_, fetched_ = 0) {
      const Run& run = *fetching_;
      const int64_t lines = run.lines();
      for (; fetched_ < run.n; ++fetched_, ahead_ += lines) {
        if (ahead_ >= kLinesAhead) return;
        FetchRow(run, run.numbers[fetched_]);
      }
    }
  }

  static void FetchRow(const Run& run, uint32_t number) {
    if (number >= kFirstSpecialRow) return;
    const uint8_t* row = run.source.rows + size_t{number} * run.source.stride;
    // A row that begins inside a line may need one line more.
    for (uint32_t offset = 0; offset < run.bytes; offset += kLine) __builtin_prefetch(row + offset);
    __builtin_prefetch(row + run.bytes - 1);
  }

  const Run* reading_;
  const Run* fetching_;
  const Run* const end_;
  size_t position_ = 0;  // of the reader in its run
  size_t fetched_ = 0;   // rows of the run that is being prefetched
  int64_t ahead_ = 0;    // lines that were prefetched and not read yet
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_FETCHER_H_
