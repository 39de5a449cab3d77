// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/string_hash.h"

#include <cstring>

#include "external/farmhash_archive/src/farmhash.h"
#include "tensorflow/core/platform/hash.h"

namespace processor {
namespace {

struct SipState {
  uint64_t a, b, c, d;

  static uint64_t Rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

  void Round() {
    a += b;
    b = Rotate(b, 13) ^ a;
    a = Rotate(a, 32);
    c += d;
    d = Rotate(d, 16) ^ c;
    a += d;
    d = Rotate(d, 21) ^ a;
    c += b;
    b = Rotate(b, 17) ^ c;
    c = Rotate(c, 32);
  }

  void Take(uint64_t word) {
    d ^= word;
    Round();
    Round();
    a ^= word;
  }
};

}  // namespace

uint64_t FastHash(const char* bytes, size_t size) { return ::util::Fingerprint64(bytes, size); }

uint64_t LegacyHash(const char* bytes, size_t size) { return tensorflow::Hash64(bytes, size); }

uint64_t StrongHash(const uint64_t key[2], const char* bytes, size_t size) {
  // "somepseudorandomlygeneratedbytes", as the paper has it.
  SipState state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                 key[1] ^ 0x7465646279746573};
  uint64_t word;
  size_t i = 0;
  for (; i + sizeof(word) <= size; i += sizeof(word)) {
    std::memcpy(&word, bytes + i, sizeof(word));
    state.Take(word);
  }
  // What is left, and the size in the highest byte.
  word = 0;
  if (i < size) std::memcpy(&word, bytes + i, size - i);
  state.Take(word | static_cast<uint64_t>(size) << 56);
  state.c ^= 0xff;
  for (int round = 0; round < 4; ++round) state.Round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace processor
