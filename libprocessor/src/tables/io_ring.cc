// SPDX-License-Identifier: Apache-2.0
#include "src/tables/io_ring.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace processor {

IoRing::Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_);
}

bool IoRing::Mapping::Map(int descriptor, size_t size, uint64_t offset) {
  void* const found =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, static_cast<off_t>(offset));
  if (found == MAP_FAILED) return false;
  data_ = static_cast<uint8_t*>(found);
  size_ = size;
  return true;
}

IoRing::~IoRing() {
  if (descriptor_ >= 0) close(descriptor_);
}

int IoRing::Open(unsigned reads) {
  io_uring_params params = {};
  descriptor_ = static_cast<int>(syscall(SYS_io_uring_setup, reads, &params));
  if (descriptor_ < 0) return errno;
  // Without IORING_FEAT_SINGLE_MMAP (Linux 5.4) there is no IORING_OP_READ (5.6) either.
  if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) return ENOSYS;
  const size_t bytes = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                                        params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
  if (!rings_.Map(descriptor_, bytes, IORING_OFF_SQ_RING) ||
      !entries_.Map(descriptor_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) {
    return errno;
  }
  offsets_ = params;
  return 0;
}

void IoRing::Add(const ReadPiece& piece, uint64_t id) {
  auto* const tail = rings_.At<unsigned>(offsets_.sq_off.tail);
  const unsigned place = *tail & *rings_.At<unsigned>(offsets_.sq_off.ring_mask);
  io_uring_sqe& entry = entries_.At<io_uring_sqe>(0)[place];
  std::memset(&entry, 0, sizeof(entry));
  entry.opcode = IORING_OP_READ;
  entry.fd = piece.descriptor;
  entry.addr = reinterpret_cast<uint64_t>(piece.bytes);
  entry.len = piece.size;
  entry.off = piece.offset;
  entry.user_data = id;
  rings_.At<unsigned>(offsets_.sq_off.array)[place] = place;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  ++added_;
}

int IoRing::Enter(size_t least) { return Enter(least, 0, nullptr, 0); }

int IoRing::EnterFor(size_t least, std::chrono::microseconds most) {
  if ((offsets_.features & IORING_FEAT_EXT_ARG) == 0 || least <= 1) return Enter(1);
  const struct {
    int64_t seconds, nanoseconds;
  } time = {most.count() / 1'000'000, most.count() % 1'000'000 * 1000};
  io_uring_getevents_arg argument = {};
  argument.ts = reinterpret_cast<uint64_t>(&time);
  const int error = Enter(least, IORING_ENTER_EXT_ARG, &argument, sizeof(argument));
  return error == ETIME ? 0 : error;
}

int IoRing::Enter(size_t least, unsigned flags, const void* argument, size_t size) {
  const long taken = syscall(SYS_io_uring_enter, descriptor_, static_cast<unsigned>(added_),
                             static_cast<unsigned>(least), IORING_ENTER_GETEVENTS | flags, argument, size);
  if (taken < 0) return errno;
  added_ -= std::min(added_, static_cast<size_t>(taken));
  return 0;
}

size_t IoRing::TakeBack() {
  auto* const tail = rings_.At<unsigned>(offsets_.sq_off.tail);
  __atomic_store_n(tail, *tail - static_cast<unsigned>(added_), __ATOMIC_RELEASE);
  const size_t taken_back = added_;
  added_ = 0;
  return taken_back;
}

}  // namespace processor
