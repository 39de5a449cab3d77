// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "src/tables/read_ahead.h"
#include "src/tables/table_crc.h"
#include "src/tables/table_index.h"

namespace processor {
namespace {

// Fits into the second-level cache, and holds whole buckets and offsets.
constexpr size_t kChunkBytes = size_t{1} << 20;

absl::Status CheckRowData(const uint8_t*, size_t) { return absl::OkStatus(); }
absl::Status CheckKeyBytes(const uint8_t*, size_t) { return absl::OkStatus(); }

absl::Status CheckZeros(const uint8_t* bytes, size_t size) {
  const bool zeros = std::all_of(bytes, bytes + size, [](uint8_t byte) { return byte == 0; });
  return zeros ? absl::OkStatus() : absl::DataLossError("bytes between the sections that are not zero");
}

// A search goes from a key's home over full buckets only. So a key in bucket b can be found if its home is not after b
// and not before the run of full buckets that ends at b.
class IndexCheck {
 public:
  explicit IndexCheck(const TableHeader& header) : header_(header) {}

  absl::Status operator()(const uint8_t* bytes, size_t size) {
    for (size_t at = 0; at < size; at += sizeof(TableBucket), ++number_) {
      TableBucket bucket;
      std::memcpy(&bucket, bytes + at, sizeof(bucket));
      if (absl::Status s = CheckBucket(bucket); !s.ok()) return s;
      if (bucket.count < kBucketKeys) run_begin_ = number_ + 1;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckBucket(const TableBucket& bucket) const {
    const uint32_t most = number_ + 1 == header_.buckets ? kBucketKeys - 1 : kBucketKeys;
    if (bucket.count > most) {
      return absl::DataLossError(absl::StrCat("index: bucket ", number_, " of ", header_.buckets, " with ",
                                              bucket.count, " keys, expected at most ", most));
    }
    for (uint32_t i = 0; i < bucket.count; ++i) {
      if (bucket.rows[i] >= header_.rows) {
        return absl::DataLossError(absl::StrCat("index: bucket ", number_, " leads to row ", bucket.rows[i],
                                                ", expected one of ", header_.rows));
      }
      const uint64_t home = HomeBucket(bucket.keys[i], header_.home_buckets);
      if (home < run_begin_ || home > number_) {
        return absl::DataLossError(absl::StrCat("index: key ", bucket.keys[i], " found in bucket ", number_,
                                                ", expected a bucket from ", home, " on"));
      }
    }
    return absl::OkStatus();
  }

  const TableHeader& header_;
  uint64_t number_ = 0;
  uint64_t run_begin_ = 0;
};

class OffsetCheck {
 public:
  explicit OffsetCheck(const TableHeader& header) : header_(header) {}

  absl::Status operator()(const uint8_t* bytes, size_t size) {
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
      uint64_t offset;
      std::memcpy(&offset, bytes + at, sizeof(offset));
      if (offset < last_ || offset > header_.key_bytes.size) {
        return absl::DataLossError(
            absl::StrCat("key_offsets: ", offset, " after ", last_, ", expected order up to ", header_.key_bytes.size));
      }
      last_ = offset;
    }
    return absl::OkStatus();
  }

 private:
  const TableHeader& header_;
  uint64_t last_ = 0;
};

// The checksums of blocks, which version 2 has.
class BlockCheck {
 public:
  /// Reads the checksums, if there are any, and checks their own.
  absl::Status Load(const TableFile& file, const TableHeader& header) {
    const TableSection& section = header.checksums;
    if (section.size == 0) return absl::OkStatus();
    blocks_ = section.size / sizeof(uint32_t);
    expected_.reset(new (std::nothrow) uint32_t[blocks_]);
    if (expected_ == nullptr) return file.Named(absl::ResourceExhaustedError("no memory for its checksums"));
    auto* const bytes = reinterpret_cast<uint8_t*>(expected_.get());
    if (absl::Status s = file.Read(section.offset, section.size, bytes); !s.ok()) return s;
    if (ExtendTableCrc(0, bytes, section.size) == section.crc) return absl::OkStatus();
    return file.Named(absl::DataLossError("checksums: wrong checksum"));
  }

  /// Returns the checksums after Load().
  std::unique_ptr<const uint32_t[]> TakeChecksums() { return std::move(expected_); }

  /// Returns where the block of a byte begins.
  static uint64_t BeginOfBlock(uint64_t at) {
    return kTableHeaderBytes + (at - kTableHeaderBytes) / kTableBlockBytes * kTableBlockBytes;
  }
  /// Leaves blocks out: the next bytes are those of a block that begins there.
  void GoTo(uint64_t begin_of_block) { number_ = (begin_of_block - kTableHeaderBytes) / kTableBlockBytes; }

  /// Adds the next bytes behind the header. Blocks that end with them are checked.
  absl::Status Add(const uint8_t* bytes, size_t size) {
    while (size > 0) {
      const size_t part = std::min(size, kTableBlockBytes - filled_);
      crc_ = ExtendTableCrc(crc_, bytes, part);
      bytes += part, size -= part, filled_ += part;
      if (filled_ < kTableBlockBytes) break;
      if (absl::Status s = Finish(); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  /// Checks the last block, which may be shorter.
  absl::Status Finish() {
    if (filled_ == 0) return absl::OkStatus();
    const uint64_t number = number_++;
    const uint32_t crc = crc_;
    crc_ = 0, filled_ = 0;
    if (crc == expected_[number]) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("block ", number, " of ", blocks_, ": wrong checksum"));
  }

 private:
  std::unique_ptr<uint32_t[]> expected_;
  uint64_t blocks_ = 0, number_ = 0;
  uint32_t crc_ = 0;
  size_t filled_ = 0;
};

// The blocks that have only rows, if there are any.
FilePart BlocksOfRows(const TableHeader& header) {
  if (header.row_data.size == 0) return {kTableHeaderBytes, kTableHeaderBytes};
  const uint64_t begin = header.row_data.offset, begun = BlockCheck::BeginOfBlock(begin);
  const uint64_t first = begin == begun ? begun : begun + kTableBlockBytes;
  const uint64_t last = BlockCheck::BeginOfBlock(begin + header.row_data.size);
  return first < last ? FilePart{first, last} : FilePart{kTableHeaderBytes, kTableHeaderBytes};
}

// Where the blocks, or in version 1 the sections, end.
uint64_t EndOfBlocks(const TableHeader& header) {
  return header.checksums.size > 0 ? header.checksums.offset : header.file_size;
}

// Where a check gets its bytes: from the page cache, where a mapping will find them, or past it.
class Source {
 public:
  Source(const TableFile& file, ReadAhead* ahead) : file_(file), ahead_(ahead) {}

  /// Gives bytes from `at` on, at least one and at most `most` or kChunkBytes, whole buckets and offsets.
  absl::Status Next(uint64_t at, uint64_t most, absl::Span<const uint8_t>* bytes) {
    most = std::min<uint64_t>(most, kChunkBytes);
    if (ahead_ != nullptr) return ahead_->Next(at, most, bytes);
    if (buffer_ == nullptr) {
      buffer_.reset(new (std::nothrow) uint8_t[kChunkBytes]);
      if (buffer_ == nullptr) return file_.Named(absl::ResourceExhaustedError("no memory to read it"));
    }
    *bytes = {buffer_.get(), static_cast<size_t>(most)};
    return file_.Read(at, static_cast<size_t>(most), buffer_.get());
  }

 private:
  const TableFile& file_;
  ReadAhead* const ahead_;
  std::unique_ptr<uint8_t[]> buffer_;
};

class Reader {
 public:
  /// `on_progress`: called after each piece; may be null.
  Reader(const TableFile& file, Source* source, BlockCheck* blocks, const std::function<void()>* on_progress)
      : file_(file), source_(source), blocks_(blocks), on_progress_(on_progress) {}

  /// Reads from where it is to `end` and hands all of it to `check`.
  template <typename Check>
  absl::Status ReadTo(uint64_t end, Check&& check) {
    while (at_ < end) {
      absl::Span<const uint8_t> bytes;
      if (absl::Status s = source_->Next(at_, end - at_, &bytes); !s.ok()) return s;
      if (blocks_ == nullptr) {
        crc_ = ExtendTableCrc(crc_, bytes.data(), bytes.size());
      } else if (absl::Status s = blocks_->Add(bytes.data(), bytes.size()); !s.ok()) {
        return file_.Named(s);
      }
      if (absl::Status s = check(bytes.data(), bytes.size()); !s.ok() && problem_.ok()) problem_ = file_.Named(s);
      at_ += bytes.size();
      if (on_progress_ != nullptr && *on_progress_) (*on_progress_)();
    }
    return absl::OkStatus();
  }

  /// Checks a section and what is before it. A wrong checksum is told before what it made of the content.
  template <typename Check>
  absl::Status ReadSection(const char* name, const TableSection& section, Check&& check) {
    if (section.size == 0) return absl::OkStatus();
    if (absl::Status s = ReadTo(section.offset, CheckZeros); !s.ok()) return s;
    if (blocks_ == nullptr && !problem_.ok()) return problem_;
    crc_ = 0;
    if (absl::Status s = ReadTo(section.offset + section.size, check); !s.ok()) return s;
    // A block may go on behind the section.
    if (blocks_ != nullptr) return absl::OkStatus();
    if (crc_ != section.crc) {
      return file_.Named(absl::DataLossError(absl::StrCat(name, ": wrong checksum")));
    }
    return problem_;
  }

  /// Reads the blocks of a section but those that are skipped.
  absl::Status ReadAround(const FilePart& skipped, const TableSection& section) {
    if (section.size == 0) return absl::OkStatus();
    if (absl::Status s = ReadTo(section.offset, CheckZeros); !s.ok()) return s;
    if (skipped.begin < skipped.end) {
      if (absl::Status s = ReadTo(skipped.begin, CheckRowData); !s.ok()) return s;
      blocks_->GoTo(skipped.end);
      at_ = skipped.end;
    }
    return ReadTo(section.offset + section.size, CheckRowData);
  }

  /// Reads up to the end of what is neither a section nor a checksum.
  absl::Status ReadRest(uint64_t end) {
    if (absl::Status s = ReadTo(end, CheckZeros); !s.ok()) return s;
    if (blocks_ != nullptr) {
      if (absl::Status s = blocks_->Finish(); !s.ok()) return file_.Named(s);
    }
    return problem_;
  }

 private:
  const TableFile& file_;
  Source* const source_;
  BlockCheck* const blocks_;  // null in version 1, whose sections have checksums
  const std::function<void()>* const on_progress_;
  uint64_t at_ = kTableHeaderBytes;
  uint32_t crc_ = 0;
  absl::Status problem_;
};

// Copies what a check reads to memory.
template <typename Check>
class Copying {
 public:
  Copying(uint8_t* dst, Check check) : dst_(dst), check_(std::move(check)) {}
  absl::Status operator()(const uint8_t* bytes, size_t size) {
    if (dst_ != nullptr) {
      std::memcpy(dst_, bytes, size);
      dst_ += size;
    }
    return check_(bytes, size);
  }

 private:
  uint8_t* dst_;  // or null: not copied
  Check check_;
};

// `ahead`: null, or where all comes from but BlocksOfRows(), unless these are copied, too. `copy`: null, or where the sections
// go. `checksums`: where those of blocks go; may be null.
absl::Status CheckContents(const TableFile& file, const TableHeader& header, ReadAhead* ahead, const TableCopy* copy,
                           std::unique_ptr<const uint32_t[]>* checksums) {
  BlockCheck blocks;
  if (absl::Status s = blocks.Load(file, header); !s.ok()) return s;
  Source source(file, ahead);
  Reader reader(file, &source, header.version == 1 ? nullptr : &blocks, copy == nullptr ? nullptr : &copy->on_progress);
  const auto copying = [copy](uint8_t* TableCopy::* dst, auto check) {
    return Copying<decltype(check)>(copy == nullptr ? nullptr : copy->*dst, std::move(check));
  };

  // In the order of the file, which the sections may have in any.
  const TableSection* sections[] = {&header.row_data, &header.index, &header.key_offsets, &header.key_bytes};
  std::sort(std::begin(sections), std::end(sections),
            [](const TableSection* a, const TableSection* b) { return a->offset < b->offset; });
  for (const TableSection* section : sections) {
    absl::Status status;
    if (section == &header.row_data) {
      status = copy != nullptr && copy->rows == nullptr
                   ? reader.ReadAround(BlocksOfRows(header), *section)
                   : reader.ReadSection("row_data", *section, copying(&TableCopy::rows, CheckRowData));
    } else if (section == &header.index) {
      status = reader.ReadSection("index", *section, copying(&TableCopy::index, IndexCheck(header)));
    } else if (section == &header.key_offsets) {
      status = reader.ReadSection("key_offsets", *section, copying(&TableCopy::key_offsets, OffsetCheck(header)));
    } else {
      status = reader.ReadSection("key_bytes", *section, copying(&TableCopy::key_bytes, CheckKeyBytes));
    }
    if (!status.ok()) return status;
  }
  absl::Status rest = reader.ReadRest(EndOfBlocks(header));
  if (checksums != nullptr) *checksums = blocks.TakeChecksums();
  return rest;
}

}  // namespace

absl::Status CheckTableContents(const TableFile& file, const TableHeader& header) {
  return CheckContents(file, header, nullptr, nullptr, nullptr);
}

absl::Status CopyTable(const TableFile& file, const DirectFile& direct, const TableHeader& header,
                       const TableCopy& copy) {
  std::vector<FilePart> all;
  if (EndOfBlocks(header) > kTableHeaderBytes) all.push_back({kTableHeaderBytes, EndOfBlocks(header)});
  std::unique_ptr<ReadAhead> ahead;
  try {
    ahead = std::make_unique<ReadAhead>(file, direct, std::move(all));
  } catch (const std::bad_alloc&) {
    return file.Named(absl::ResourceExhaustedError("no memory to read it"));
  }
  return CheckContents(file, header, ahead.get(), &copy, nullptr);
}

absl::Status ReadTableParts(const TableFile& file, const DirectFile& direct, const TableHeader& header,
                            TableParts* parts) {
  if (header.version == 1) {
    return file.Named(absl::FailedPreconditionError(
        "version 1 of the format, expected 2 for a tiered table: it has checksums of blocks"));
  }
  const FilePart rows = BlocksOfRows(header);
  std::vector<FilePart> read;
  for (const FilePart& part : {FilePart{kTableHeaderBytes, rows.begin}, FilePart{rows.end, EndOfBlocks(header)}}) {
    if (part.begin < part.end) read.push_back(part);
  }
  std::unique_ptr<ReadAhead> ahead;
  try {
    ahead = std::make_unique<ReadAhead>(file, direct, std::move(read));
    parts->index = HugeMemory(header.index.size);
    parts->key_offsets = HugeMemory(header.key_offsets.size);
    parts->key_bytes = HugeMemory(header.key_bytes.size);
  } catch (const std::bad_alloc&) {
    return file.Named(absl::ResourceExhaustedError(absl::StrCat(
        "no memory for its index of ", header.index.size + header.key_offsets.size + header.key_bytes.size, " bytes")));
  }
  TableCopy copy;
  copy.index = parts->index.data();
  copy.key_offsets = parts->key_offsets.data();
  copy.key_bytes = parts->key_bytes.data();
  return CheckContents(file, header, ahead.get(), &copy, &parts->checksums);
}

}  // namespace processor
