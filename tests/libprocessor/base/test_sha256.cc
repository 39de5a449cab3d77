// SPDX-License-Identifier: Apache-2.0
#include "src/base/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace processor {
namespace {

std::string Hash(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.Finish();
}

// Examples of FIPS 180-4.
TEST(Sha256, EqualsTheStandardsExamples) {
  EXPECT_EQ(Hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, HashIsIndependentOfPieceSizes) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text.push_back(static_cast<char>(i * 37));
  for (size_t size = 0; size < 300; ++size) {
    const std::string whole = Hash(text.substr(0, size));
    for (const size_t piece : {1u, 7u, 63u, 64u, 65u, 128u}) {
      Sha256 hash;
      for (size_t at = 0; at < size; at += piece)
        hash.Update(std::string_view(text).substr(at, std::min(piece, size - at)));
      ASSERT_EQ(hash.Finish(), whole) << size << " bytes in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace processor
