// SPDX-License-Identifier: Apache-2.0
#include "src/base/sha256.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace processor {
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t Rotated(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

void AddBlocks(uint32_t* state, const uint8_t* data, size_t blocks) {
  for (; blocks > 0; --blocks, data += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      uint32_t word;
      std::memcpy(&word, data + 4 * i, sizeof word);
      w[i] = __builtin_bswap32(word);
    }
    for (int i = 16; i < 64; ++i) {
      const uint32_t low = Rotated(w[i - 15], 7) ^ Rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
      const uint32_t high = Rotated(w[i - 2], 17) ^ Rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + low + w[i - 7] + high;
    }
    uint32_t s[8];
    std::copy(state, state + 8, s);
    for (int i = 0; i < 64; ++i) {
      const uint32_t e = Rotated(s[4], 6) ^ Rotated(s[4], 11) ^ Rotated(s[4], 25);
      const uint32_t one = s[7] + e + ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
      const uint32_t a = Rotated(s[0], 2) ^ Rotated(s[0], 13) ^ Rotated(s[0], 22);
      const uint32_t two = a + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      std::copy_backward(s, s + 7, s + 8);
      s[4] += one;
      s[0] = one + two;
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

// Four rounds at a time; the instructions keep the state as ABEF and CDGH.
__attribute__((target("sha,sse4.1"))) void AddBlocksSha(uint32_t* state, const uint8_t* data, size_t blocks) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
  const __m128i abcd = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i efgh = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i badc = _mm_shuffle_epi32(abcd, 0xB1), hgfe = _mm_shuffle_epi32(efgh, 0x1B);
  __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xF0);
  for (; blocks > 0; --blocks, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i), order);
    }
#pragma GCC unroll 16  // so that the words stay in their registers
    for (int i = 0; i < 16; ++i) {
      if (i >= 4) {
        // The words w[t] of four rounds, from those of the sixteen rounds before.
        const __m128i between = _mm_alignr_epi8(w[3], w[2], 4);
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[0], w[1]), between);
        const __m128i next = _mm_sha256msg2_epu32(sum, w[3]);
        w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = next;
      }
      const __m128i round = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + i);
      const __m128i added = _mm_add_epi32(w[i < 4 ? i : 3], round);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

using AddFunction = void (*)(uint32_t*, const uint8_t*, size_t);

AddFunction Choose() {
  __builtin_cpu_init();
  // GCC 12 has no name for the SHA extensions here: CPUID leaf 7, EBX bit 29.
  uint32_t a = 7, b = 0, c = 0, d = 0;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (b >> 29 & 1) != 0 && __builtin_cpu_supports("sse4.1") ? AddBlocksSha : AddBlocks;
}

void Add(uint32_t* state, const uint8_t* data, size_t blocks) {
  static const AddFunction add = Choose();
  add(state, data, blocks);
}

}  // namespace

void Sha256::Update(std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t size = bytes.size();
  bytes_ += size;
  if (rest_size_ > 0) {
    const size_t taken = std::min(size, kBlock - rest_size_);
    std::copy(data, data + taken, rest_.begin() + static_cast<ptrdiff_t>(rest_size_));
    rest_size_ += taken, data += taken, size -= taken;
    if (rest_size_ < kBlock) return;
    Add(state_.data(), rest_.data(), 1);
    rest_size_ = 0;
  }
  Add(state_.data(), data, size / kBlock);
  data += size / kBlock * kBlock;
  rest_size_ = size % kBlock;
  std::copy(data, data + rest_size_, rest_.begin());
}

std::array<uint8_t, 32> Sha256::FinishBytes() {
  const uint64_t bits = 8 * bytes_;
  std::string end(1 + (119 - bytes_ % kBlock) % kBlock, '\0');
  end[0] = '\x80';
  for (int shift = 56; shift >= 0; shift -= 8) end.push_back(static_cast<char>(bits >> shift));
  Update(end);
  std::array<uint8_t, 32> hash;
  for (size_t i = 0; i < hash.size(); ++i) hash[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return hash;
}

std::string Sha256::Finish() {
  std::string text;
  for (const uint8_t byte : FinishBytes()) {
    text.push_back("0123456789abcdef"[byte >> 4]);
    text.push_back("0123456789abcdef"[byte & 15]);
  }
  return text;
}

}  // namespace processor
