// SPDX-License-Identifier: Apache-2.0
// Rows of tiered tables that are read for a request before it runs, so that neither a session nor a thread waits for the
// device.
//
// They are a copy of what the files have, by the number of the row: whatever a request turns out to need at its epoch, a row
// that was read early is right, and one that was not is read when the request runs. So nothing here can fail a request.
#ifndef PROCESSOR_TABLES_EARLY_ROWS_H_
#define PROCESSOR_TABLES_EARLY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "src/tables/started_reads.h"
#include "src/tables/tiered_pieces.h"
#include "src/tables/tiered_rows.h"

namespace processor {

/// The rows of one request. Any thread may read them after they have come.
class EarlyRows : public StartedReads {
 public:
  /// What is read for all requests that wait takes at most so much memory; the rows of one request, an eighth.
  static constexpr int64_t kMostBytes = int64_t{64} << 20;
  /// With so many pieces on the way, a device that gives nothing any more may have all of them: then requests read when they
  /// run, each by itself. A device that works has enough to do.
  static constexpr int64_t kMostPieces = 256;

  /// `tables`: keeps those of which rows are wanted.
  explicit EarlyRows(std::shared_ptr<const void> tables) : tables_(std::move(tables)) {}
  ~EarlyRows() override;
  EarlyRows(const EarlyRows&) = delete;
  EarlyRows& operator=(const EarlyRows&) = delete;

  /// Asks for the rows `numbers[i]` of the file that are not in its cache; other numbers, and more than can be read early,
  /// are passed over.
  void Want(TieredRows* rows, absl::Span<const uint32_t> numbers);

  /// Takes the memory for as many rows as may be read early.
  /// \return whether there is anything to read.
  bool Prepare();

  /// Reads the rows, after Prepare(). `ended` is called exactly once, on any thread, perhaps before this returns; it must not
  /// wait.
  static void Start(const std::shared_ptr<EarlyRows>& rows, std::function<void()> ended);

  /// Checks what has come. To be called once, after the reads have ended, on a thread that may work.
  void Take();

  /// Returns the bytes of a row, or null if it has not been read.
  const uint8_t* Find(const TieredRows* rows, uint32_t number) const;

  size_t num_rows() const { return found_.size(); }

  /// Returns the bytes that are taken for all requests.
  static int64_t BytesOfAll();

 private:
  static constexpr size_t kMostWanted = 1 << 16;  // rows of a request, with those that it needs several times

  void Finished() noexcept override;

  std::shared_ptr<const void> tables_;
  std::vector<uint32_t> missing_;   // positions in the numbers of one Want()
  std::vector<TieredMiss> wanted_;  // ascending after Prepare()
  std::vector<TieredMiss> found_;   // those that have come, and where they are
  TieredPieces layout_;
  uint8_t* buffer_ = nullptr;
  int64_t claimed_ = 0;
  std::function<void()> ended_;
};

using EarlyRowsList = absl::Span<const EarlyRows* const>;

/// Offers rows to what runs on this thread until the scope ends. The list must stay as long.
class EarlyRowsScope {
 public:
  explicit EarlyRowsScope(EarlyRowsList rows) noexcept;
  ~EarlyRowsScope();
  EarlyRowsScope(const EarlyRowsScope&) = delete;
  EarlyRowsScope& operator=(const EarlyRowsScope&) = delete;

  /// Returns the rows of the innermost scope of this thread; none if there is no scope.
  static EarlyRowsList Current() noexcept;

 private:
  const EarlyRowsList before_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_EARLY_ROWS_H_
