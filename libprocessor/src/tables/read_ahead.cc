// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_ahead.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

// A device reads a few such pieces as fast as it can.
constexpr uint32_t kAheadPieceBytes = uint32_t{512} << 10;
// What is read around a stretch, so that both ends are aligned.
constexpr size_t kAheadMarginBytes = 2 * 4096;

}  // namespace

ReadAhead::ReadAhead(const TableFile& file, const DirectFile& direct, std::vector<FilePart> parts)
    : file_(file), direct_(direct), parts_(std::move(parts)), reads_(ReadBatch::Make()) {
  if (parts_.empty()) return;
  begin_ = parts_[0].begin;
  for (Batch& batch : batches_) batch.memory = HugeMemory(kStretchBytes + kAheadMarginBytes);
  Begin(&batches_[0]);
}

ReadAhead::~ReadAhead() {
  for (Batch& batch : batches_) {
    if (batch.reading.valid()) batch.reading.wait();
  }
}

// Begins to read what comes next, if there is more.
void ReadAhead::Begin(Batch* batch) {
  batch->part = {begin_, begin_};
  batch->pieces.clear();
  if (part_ == parts_.size()) return;
  batch->part.end = std::min(parts_[part_].end, (begin_ / kStretchBytes + 1) * kStretchBytes);
  begin_ = batch->part.end;
  if (begin_ == parts_[part_].end && ++part_ < parts_.size()) begin_ = parts_[part_].begin;

  const uint64_t first = direct_.Down(batch->part.begin), end = direct_.Up(batch->part.end);
  for (uint64_t at = first; at < end; at += kAheadPieceBytes) {
    const auto size = static_cast<uint32_t>(std::min<uint64_t>(kAheadPieceBytes, end - at));
    batch->pieces.push_back({direct_.descriptor(), at, size, batch->memory.data() + (at - first)});
  }
  const auto read = [this, batch] { reads_->Read(absl::MakeSpan(batch->pieces)); };
  try {
    batch->reading = std::async(std::launch::async, read);
  } catch (const std::system_error&) {
    // Without a thread, it is read when it is needed.
    batch->reading = std::async(std::launch::deferred, read);
  }
}

absl::Status ReadAhead::Finish(Batch* batch) {
  if (batch->part.begin == batch->part.end) return absl::OkStatus();
  batch->reading.get();
  direct_.Forget(batch->part.begin, batch->part.end - batch->part.begin);
  for (const ReadPiece& piece : batch->pieces) {
    const uint64_t read_end = piece.offset + piece.got;
    if (read_end >= std::min(piece.offset + piece.size, batch->part.end)) continue;
    if (piece.error != 0) {
      return file_.Named(
          absl::UnavailableError(absl::StrCat("cannot be read at ", read_end, ": ", std::strerror(piece.error))));
    }
    return file_.Named(
        absl::DataLossError(absl::StrCat("ends at ", read_end, ", expected ", file_.identity().size, " bytes")));
  }
  return absl::OkStatus();
}

absl::Status ReadAhead::Next(uint64_t at, uint64_t most, absl::Span<const uint8_t>* bytes) {
  if (at >= batches_[current_].part.end || at < batches_[current_].part.begin) {
    // The batch that was used becomes the one after the next.
    Batch& used = batches_[current_];
    current_ = 1 - current_;
    if (absl::Status s = Finish(&batches_[current_]); !s.ok()) return s;
    Begin(&used);
  }
  const Batch& batch = batches_[current_];
  if (at < batch.part.begin || at >= batch.part.end) {
    return file_.Named(absl::InternalError(absl::StrCat("byte ", at, " was not to be read next")));
  }
  const size_t skipped = static_cast<size_t>(at - direct_.Down(batch.part.begin));
  *bytes = {batch.memory.data() + skipped, static_cast<size_t>(std::min(most, batch.part.end - at))};
  return absl::OkStatus();
}

}  // namespace processor
