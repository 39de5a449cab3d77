// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_timeline.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr size_t kEpochDigits = 16;
constexpr std::string_view kDeltaSuffix = ".delta";
// A listing that runs beside compaction may show neither the old segments nor the new one, so the next one decides.
constexpr int kListings = 5;

// The epochs of a file, as its name says.
struct NamedEpochs {
  uint64_t first = 0;
  uint64_t last = 0;

  bool operator<(const NamedEpochs& other) const { return std::tie(first, last) < std::tie(other.first, other.last); }
};

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
  bool has_next = false, has_other = false;
  NamedEpochs next;   // begins with the next epoch, and has the greatest last one
  NamedEpochs other;  // the first of those that end with the next epoch or later
};

void AddName(const NamedEpochs& name, uint64_t next_epoch, Listing* listing) {
  if (name.last < next_epoch) return;
  if (name.first == next_epoch) {
    if (!listing->has_next || listing->next < name) listing->next = name;
    listing->has_next = true;
  } else {
    if (!listing->has_other || name < listing->other) listing->other = name;
    listing->has_other = true;
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

absl::Status ListTimeline(const std::string& folder, uint64_t next_epoch, Listing* listing) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) return TimelineError(folder, errno);
  while (true) {
    errno = 0;
    const dirent* entry = readdir(opened.get());
    if (entry == nullptr) return errno == 0 ? absl::OkStatus() : TimelineError(folder, errno);
    NamedEpochs name;
    if (ParseDeltaName(entry->d_name, &name)) AddName(name, next_epoch, listing);
  }
}

std::string PathOf(const std::string& folder, const NamedEpochs& name) {
  return absl::StrCat(folder, "/", DeltaFileName(name.first, name.last));
}

absl::Status CheckSegment(const DeltaSegment& segment, const NamedEpochs& name, const TimelinePosition& position) {
  const DeltaHeader& header = segment.header();
  absl::Status status = CheckContinues(header, position);
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

absl::Status CheckContinues(const DeltaHeader& header, const TimelinePosition& position) {
  std::string fault;
  if (header.lineage != position.lineage) {
    fault = absl::StrCat("lineage ", HexText(header.lineage), ", expected ", HexText(position.lineage),
                         "; another lineage");
  } else if (header.first_epoch != position.epoch + 1) {
    fault = absl::StrCat("epochs ", header.first_epoch, " to ", header.last_epoch, " after epoch ", position.epoch,
                         ", expected epoch ", position.epoch + 1, "; out of order");
  } else if (header.previous != position.chain) {
    fault = absl::StrCat("previous ", HexText(header.previous), ", expected ", HexText(position.chain),
                         ", the chain hash of epoch ", position.epoch, "; another history");
  } else if (header.term < position.term) {
    fault = absl::StrCat("term ", header.term, ", expected at least ", position.term, "; a second writer");
  } else {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fault);
}

absl::Status DeltaTimeline::Next(const TimelinePosition& position, std::unique_ptr<const DeltaSegment>* segment) const {
  segment->reset();
  const uint64_t next_epoch = position.epoch + 1;
  absl::Status status;
  for (int i = 0; i < kListings; ++i) {
    Listing listing;
    if (absl::Status s = ListTimeline(folder_, next_epoch, &listing); !s.ok()) return s;
    if (!listing.has_next) {
      if (!listing.has_other) return absl::OkStatus();
      const NamedEpochs& other = listing.other;
      status = absl::FailedPreconditionError(
          absl::StrCat("segment '", PathOf(folder_, other), "': epochs ", other.first, " to ", other.last,
                       " after epoch ", position.epoch, ", expected a segment that begins with epoch ", next_epoch,
                       other.first > next_epoch ? "; a gap" : "; out of order"));
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
