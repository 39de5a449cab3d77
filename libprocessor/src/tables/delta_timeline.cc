// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_timeline.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr size_t kEpochDigits = 16;
constexpr std::string_view kDeltaSuffix = ".delta";
// A listing that runs beside compaction may show neither the old segments nor the new one, so the next one decides.
constexpr int kListings = 5;

bool ParseEpoch(std::string_view digits, uint64_t* epoch) {
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         absl::SimpleAtoi(digits, epoch);
}

bool ParseDeltaName(std::string_view name, NamedEpochs* epochs) {
  return name.size() == 2 * kEpochDigits + 1 + kDeltaSuffix.size() && name[kEpochDigits] == '-' &&
         name.substr(2 * kEpochDigits + 1) == kDeltaSuffix &&
         ParseEpoch(name.substr(0, kEpochDigits), &epochs->first) &&
         ParseEpoch(name.substr(kEpochDigits + 1, kEpochDigits), &epochs->last);
}

// What a listing shows about the epochs after a position.
struct Listing {
  bool has_next = false, has_longer = false, has_later = false;
  NamedEpochs next;    // begins with the next epoch or before, as late as there is one, and has the greatest last one
  NamedEpochs longer;  // would be next, but ends too late
  NamedEpochs later;   // the first of those that begin after the next epoch
};

void AddName(const NamedEpochs& name, uint64_t next_epoch, uint64_t most, Listing* listing) {
  if (name.last < next_epoch || name.first > most) return;
  if (name.first <= next_epoch && name.last > most) {
    if (!listing->has_longer || listing->longer < name) listing->longer = name;
    listing->has_longer = true;
  } else if (name.first <= next_epoch) {
    if (!listing->has_next || listing->next < name) listing->next = name;
    listing->has_next = true;
  } else {
    if (!listing->has_later || name < listing->later) listing->later = name;
    listing->has_later = true;
  }
}

absl::Status TimelineError(const std::string& folder, int error) {
  const std::string message = absl::StrCat("timeline '", folder, "': ");
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat(message, "no such folder, expected one with segments"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(message, "not readable; let the user of this process list it"));
    default:
      return absl::UnavailableError(absl::StrCat(message, "cannot be listed: ", std::strerror(error)));
  }
}

std::string PathOf(const std::string& folder, const NamedEpochs& name) {
  return absl::StrCat(folder, "/", name.FileName());
}

absl::Status CheckSegment(const DeltaSegment& segment, const NamedEpochs& name, const TimelinePosition& position) {
  const DeltaHeader& header = segment.header();
  absl::Status status = CheckContinues(header, segment.chains(), position);
  if (header.first_epoch != name.first || header.last_epoch != name.last) {
    status = absl::FailedPreconditionError(absl::StrCat("epochs ", header.first_epoch, " to ", header.last_epoch,
                                                        ", expected those of its name; out of order"));
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("segment '", segment.path(), "': ", status.message()));
}

}  // namespace

TimelinePosition PositionOfExport(const DeltaLineage& lineage) { return {lineage, 0, ChainOfExport(lineage), 0}; }

TimelinePosition PositionAfter(const DeltaHeader& header) {
  return {header.lineage, header.last_epoch, header.chain, header.term};
}

std::string DeltaFileName(uint64_t first_epoch, uint64_t last_epoch) {
  return absl::StrCat(absl::Dec(first_epoch, absl::kZeroPad16), "-", absl::Dec(last_epoch, absl::kZeroPad16),
                      kDeltaSuffix);
}

absl::Status ListSegments(const std::string& folder, std::vector<NamedEpochs>* found) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) return TimelineError(folder, errno);
  found->clear();
  while (true) {
    errno = 0;
    const dirent* entry = readdir(opened.get());
    if (entry == nullptr) return errno == 0 ? absl::OkStatus() : TimelineError(folder, errno);
    NamedEpochs name;
    if (ParseDeltaName(entry->d_name, &name)) found->push_back(name);
  }
}

absl::Status CheckContinues(const DeltaHeader& header, absl::Span<const ChainHash> chains,
                            const TimelinePosition& position) {
  std::string fault;
  // What the segment says the chain hash of the position is.
  const ChainHash* before = header.first_epoch == position.epoch + 1 ? &header.previous : nullptr;
  if (header.first_epoch <= position.epoch && position.epoch - header.first_epoch < chains.size()) {
    before = &chains[position.epoch - header.first_epoch];
  }
  if (header.lineage != position.lineage) {
    fault = absl::StrCat("lineage ", HexText(header.lineage), ", expected ", HexText(position.lineage),
                         "; another lineage");
  } else if (before == nullptr) {
    fault = absl::StrCat("epochs ", header.first_epoch, " to ", header.last_epoch, " after epoch ", position.epoch,
                         ", expected epoch ", position.epoch + 1, "; out of order");
  } else if (*before != position.chain) {
    fault = absl::StrCat("follows ", HexText(*before), ", expected ", HexText(position.chain),
                         ", the chain hash of epoch ", position.epoch, "; another history");
  } else if (header.term < position.term) {
    fault = absl::StrCat("term ", header.term, ", expected at least ", position.term, "; a second writer");
  } else {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fault);
}

absl::Status DeltaTimeline::Next(const TimelinePosition& position, uint64_t most,
                                 std::unique_ptr<const DeltaSegment>* segment) const {
  segment->reset();
  const uint64_t next_epoch = position.epoch + 1;
  absl::Status status;
  for (int i = 0; i < kListings; ++i) {
    std::vector<NamedEpochs> names;
    if (absl::Status s = ListSegments(folder_, &names); !s.ok()) return s;
    Listing listing;
    for (const NamedEpochs& name : names) AddName(name, next_epoch, most, &listing);
    if (!listing.has_next && listing.has_longer) {
      const NamedEpochs& longer = listing.longer;
      return absl::FailedPreconditionError(
          absl::StrCat("segment '", PathOf(folder_, longer), "': epochs ", longer.first, " to ", longer.last,
                       ", expected a segment that ends with epoch ", most, ", at which the model is to stay"));
    }
    if (!listing.has_next) {
      if (!listing.has_later) return absl::OkStatus();
      const NamedEpochs& later = listing.later;
      status = absl::FailedPreconditionError(absl::StrCat(
          "segment '", PathOf(folder_, later), "': epochs ", later.first, " to ", later.last, " after epoch ",
          position.epoch, ", expected a segment that begins with epoch ", next_epoch, "; a gap"));
      continue;
    }
    std::unique_ptr<const DeltaSegment> opened;
    status = DeltaSegment::Open(PathOf(folder_, listing.next), &opened);
    if (absl::IsNotFound(status)) continue;
    if (status.ok()) status = CheckSegment(*opened, listing.next, position);
    if (status.ok()) *segment = std::move(opened);
    return status;
  }
  return status;
}

}  // namespace processor
