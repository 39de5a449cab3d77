// SPDX-License-Identifier: Apache-2.0
// Steps from values to keys. tests/libprocessor/test_embedding_keys.py compares them with TensorFlow's ops.
#include "src/kernels/key_steps.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/kernels/string_hash.h"

namespace processor {
namespace {

using tensorflow::tstring;

PlanStep MakeStep(StepKind kind, int64_t first = 0, int64_t second = 0, int64_t third = 1) {
  PlanStep step{};
  step.kind = kind;
  step.first = first;
  step.second = second;
  step.third = third;
  return step;
}

PlanKey MakeKey(std::vector<PlanStep> steps) {
  PlanKey key;
  key.steps = std::move(steps);
  return key;
}

template <typename T>
std::vector<int64_t> Keys(const PlanKey& key, tensorflow::DataType type, const std::vector<T>& values,
                          std::vector<uint8_t>* none = nullptr) {
  KeySteps steps;
  const absl::Status made = KeySteps::Make(key, type, &steps);
  EXPECT_TRUE(made.ok()) << made;
  std::vector<int64_t> keys(values.size());
  std::vector<uint8_t> marks(values.size(), 9);
  const bool any = steps.Numbers(values.data(), values.size(), keys.data(), marks.data());
  if (none != nullptr) *none = any ? marks : std::vector<uint8_t>();
  return keys;
}

std::string Refused(const PlanKey& key, tensorflow::DataType type) {
  KeySteps steps;
  return std::string(KeySteps::Make(key, type, &steps).message());
}

TEST(FastMod, EqualsTheOperator) {
  std::mt19937_64 random(3);
  std::vector<uint64_t> divisors = {1,
                                    2,
                                    3,
                                    5,
                                    7,
                                    10,
                                    100,
                                    1000003,
                                    uint64_t{1} << 31,
                                    (uint64_t{1} << 32) - 1,
                                    (uint64_t{1} << 63) - 1,
                                    uint64_t{1} << 63};
  for (int i = 0; i < 1000; ++i) divisors.push_back(1 + (random() >> 1 >> random() % 62));
  for (const uint64_t divisor : divisors) {
    const FastMod mod(divisor);
    std::vector<uint64_t> numbers = {0,
                                     1,
                                     divisor - 1,
                                     divisor,
                                     divisor + 1,
                                     UINT64_MAX,
                                     UINT64_MAX - 1,
                                     UINT64_MAX / divisor * divisor,
                                     UINT64_MAX / divisor * divisor - 1,
                                     uint64_t{1} << 63};
    for (int i = 0; i < 100; ++i) numbers.push_back(random() >> random() % 63);
    for (const uint64_t number : numbers) {
      ASSERT_EQ(mod.Unsigned(number), number % divisor) << number << " " << divisor;
      ASSERT_EQ(mod.Quotient(number), number / divisor) << number << " " << divisor;
      const auto value = static_cast<__int128>(static_cast<int64_t>(number));
      const auto wide = static_cast<__int128>(divisor);
      const auto rest = (value % wide + wide) % wide;
      ASSERT_EQ(mod.Floor(static_cast<int64_t>(number)), static_cast<uint64_t>(rest));
      ASSERT_EQ(mod.FloorQuotient(static_cast<int64_t>(number)), static_cast<int64_t>((value - rest) / wide));
    }
  }
}

TEST(StringHash, StrongHashIsSipHash) {
  // The vectors of the reference implementation: key 00 01 ... 0f, message 00 01 ....
  const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  char message[16];
  for (int i = 0; i < 16; ++i) message[i] = static_cast<char>(i);
  EXPECT_EQ(StrongHash(key, message, 0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(StrongHash(key, message, 1), 0x74f839c593dc67fdu);
  EXPECT_EQ(StrongHash(key, message, 8), 0x93f5f5799a932462u);
  EXPECT_EQ(StrongHash(key, message, 15), 0xa129ca6149be45e5u);
}

TEST(KeySteps, IntegersAreWidened) {
  EXPECT_EQ(Keys<int32_t>(MakeKey({}), tensorflow::DT_INT32, {-1, 5, INT32_MIN}),
            (std::vector<int64_t>{-1, 5, INT32_MIN}));
  EXPECT_EQ(Keys<uint32_t>(MakeKey({}), tensorflow::DT_UINT32, {UINT32_MAX}), (std::vector<int64_t>{UINT32_MAX}));
  EXPECT_EQ(Keys<uint64_t>(MakeKey({}), tensorflow::DT_UINT64, {UINT64_MAX}), (std::vector<int64_t>{-1}));
}

TEST(KeySteps, BitsAreMixedAndTakenWithoutASign) {
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kXorShift, 63)}), tensorflow::DT_INT64, {INT64_MIN, 2}),
            (std::vector<int64_t>{INT64_MIN + 1, 2}));
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kBits, 60, 4)}), tensorflow::DT_INT64, {-1, INT64_MIN, 7}),
            (std::vector<int64_t>{15, 8, 0}));
  // 0b101101: bits 0, 2 and 4 are 1, 1 and 0.
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kBits, 0, 3, 2)}), tensorflow::DT_INT64, {45, -1}),
            (std::vector<int64_t>{3, 7}));
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kBits, 3, 3, 30)}), tensorflow::DT_INT64, {INT64_MIN, 8, -1}),
            (std::vector<int64_t>{4, 1, 7}));
  // What is made of bits is a number, whatever type they came from.
  const PlanKey key =
      MakeKey({MakeStep(StepKind::kBits, 0, 63), MakeStep(StepKind::kAdd, -INT64_MAX), MakeStep(StepKind::kMod, 10)});
  EXPECT_EQ(Keys<uint64_t>(key, tensorflow::DT_UINT64, {UINT64_MAX - 1, 0}), (std::vector<int64_t>{9, 3}));
}

TEST(KeySteps, FirstStepsAreSharedWithTheKeyBefore) {
  const std::vector<PlanStep> mixed = {MakeStep(StepKind::kAdd, 5), MakeStep(StepKind::kXorShift, 30),
                                       MakeStep(StepKind::kMultiply, 77), MakeStep(StepKind::kBits, 0, 8)};
  PlanKey before = MakeKey(mixed), key = MakeKey(mixed);
  key.steps[3].first = 8;
  const auto shared = [](const PlanKey& one, const PlanKey& other) {
    KeySteps steps;
    EXPECT_TRUE(KeySteps::Make(other, tensorflow::DT_INT64, &steps).ok());
    steps.ShareWith(one, other);
    return steps.shared();
  };
  EXPECT_EQ(shared(before, key), 3u);
  EXPECT_EQ(shared(before, before), 4u);
  key.ignore = IgnoreKind::kInteger;
  EXPECT_EQ(shared(before, key), 0u);
  before.ignore = IgnoreKind::kInteger;
  EXPECT_EQ(shared(before, key), 3u);
  key.feature = 1;
  EXPECT_EQ(shared(before, key), 0u);
  key.feature = 0;
  key.steps[1].first = 29;
  EXPECT_EQ(shared(before, key), 0u);

  KeySteps steps;
  ASSERT_TRUE(KeySteps::Make(before, tensorflow::DT_INT64, &steps).ok());
  const std::vector<int64_t> values = {0, 1, -1, INT64_MIN};
  std::vector<int64_t> whole(4), parts(4);
  std::vector<uint8_t> none(4), none_of_parts(4);
  EXPECT_TRUE(steps.Numbers(values.data(), 4, whole.data(), none.data()));
  const bool any = steps.Start(values.data(), 4, 3, parts.data(), none_of_parts.data());
  EXPECT_TRUE(steps.Finish(3, 4, parts.data(), none_of_parts.data(), any));
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(none, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_EQ(none_of_parts, none);
}

TEST(KeySteps, QuotientsAreRoundedDown) {
  const PlanKey key = MakeKey({MakeStep(StepKind::kDivide, 4)});
  EXPECT_EQ(Keys<int64_t>(key, tensorflow::DT_INT64, {-5, -4, -1, 0, 3, 4, INT64_MIN}),
            (std::vector<int64_t>{-2, -1, -1, 0, 0, 1, INT64_MIN / 4}));
  EXPECT_EQ(Keys<uint64_t>(key, tensorflow::DT_UINT64, {UINT64_MAX}), (std::vector<int64_t>{INT64_MAX / 2}));
}

TEST(KeySteps, ArithmeticWrapsAndModIsNotNegative) {
  const PlanKey key =
      MakeKey({MakeStep(StepKind::kMultiply, 3), MakeStep(StepKind::kAdd, -1), MakeStep(StepKind::kMod, 10)});
  EXPECT_EQ(Keys<int64_t>(key, tensorflow::DT_INT64, {-5, 0, 4}), (std::vector<int64_t>{4, 9, 1}));
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kMod, -7)}), tensorflow::DT_INT64, {-8, -7, 0, 8, INT64_MIN}),
            (std::vector<int64_t>{-1, 0, 0, -6, INT64_MIN % 7}));
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kMod, INT64_MIN)}), tensorflow::DT_INT64, {INT64_MIN, -1, 1}),
            (std::vector<int64_t>{0, -1, INT64_MIN + 1}));
  EXPECT_EQ(Keys<uint64_t>(MakeKey({MakeStep(StepKind::kMod, 10)}), tensorflow::DT_UINT64, {UINT64_MAX}),
            (std::vector<int64_t>{5}));
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kAdd, INT64_MAX)}), tensorflow::DT_INT64, {1}),
            (std::vector<int64_t>{INT64_MIN}));
  EXPECT_EQ(Keys<int64_t>(MakeKey({MakeStep(StepKind::kClip, -2, 3)}), tensorflow::DT_INT64, {-9, 0, 9}),
            (std::vector<int64_t>{-2, 0, 3}));
  EXPECT_EQ(Keys<uint64_t>(MakeKey({MakeStep(StepKind::kClip, -2, 3)}), tensorflow::DT_UINT64, {UINT64_MAX, 0}),
            (std::vector<int64_t>{3, 0}));
}

TEST(KeySteps, NegativeNumbersCountFromTheEnd) {
  const PlanKey key = MakeKey({MakeStep(StepKind::kWrapNegative, 10)});
  EXPECT_EQ(Keys<int64_t>(key, tensorflow::DT_INT64, {-11, -10, -1, 0, 9, 10, INT64_MIN}),
            (std::vector<int64_t>{-1, 0, 9, 0, 9, 10, INT64_MIN + 10}));
  EXPECT_EQ(Keys<int32_t>(key, tensorflow::DT_INT32, {-1}), (std::vector<int64_t>{9}));
  EXPECT_EQ(Keys<uint64_t>(key, tensorflow::DT_UINT64, {UINT64_MAX}), (std::vector<int64_t>{-1}));
}

TEST(KeySteps, NumbersAreHashedAsTheirDigits) {
  const PlanKey key = MakeKey({MakeStep(StepKind::kToString), MakeStep(StepKind::kFastHash, 1000)});
  for (const int64_t number : {int64_t{0}, int64_t{-12}, INT64_MIN, INT64_MAX}) {
    const std::string digits = std::to_string(number);
    EXPECT_EQ(Keys<int64_t>(key, tensorflow::DT_INT64, {number})[0], FastHash(digits.data(), digits.size()) % 1000);
  }
  const std::string digits = std::to_string(UINT64_MAX);
  EXPECT_EQ(Keys<uint64_t>(key, tensorflow::DT_UINT64, {UINT64_MAX})[0], FastHash(digits.data(), digits.size()) % 1000);
}

TEST(KeySteps, IgnoredValuesAreMarked) {
  std::vector<uint8_t> none;
  PlanKey key = MakeKey({MakeStep(StepKind::kFastHash, 10)});
  key.ignore = IgnoreKind::kString;
  const std::vector<tstring> words = {tstring(""), tstring("a"), tstring(std::string(100, 'x'))};
  Keys(key, tensorflow::DT_STRING, words, &none);
  EXPECT_EQ(none, (std::vector<uint8_t>{1, 0, 0}));
  key.ignored_string = std::string(100, 'x');
  Keys(key, tensorflow::DT_STRING, words, &none);
  EXPECT_EQ(none, (std::vector<uint8_t>{0, 0, 1}));
  key.ignored_string = "b";
  Keys(key, tensorflow::DT_STRING, words, &none);
  EXPECT_TRUE(none.empty());

  PlanKey number = MakeKey({MakeStep(StepKind::kAdd, -5)});
  number.ignore = IgnoreKind::kInteger;
  number.ignored_integer = 7;
  number.ignore_negative = true;
  Keys<int32_t>(number, tensorflow::DT_INT32, {7, 5, 4}, &none);
  EXPECT_EQ(none, (std::vector<uint8_t>{1, 0, 1}));
  number.ignore = IgnoreKind::kNothing;
  Keys<int32_t>(number, tensorflow::DT_INT32, {7, 5, 4}, &none);
  EXPECT_EQ(none, (std::vector<uint8_t>{0, 0, 1}));
}

TEST(KeySteps, FormatsNumbersInChunks) {
  PlanKey key = MakeKey({MakeStep(StepKind::kAdd, 1), MakeStep(StepKind::kToString)});
  key.ignore = IgnoreKind::kInteger;
  key.ignored_integer = 100;
  KeySteps steps;
  ASSERT_TRUE(KeySteps::Make(key, tensorflow::DT_INT32, &steps).ok());
  ASSERT_TRUE(steps.gives_strings());
  ASSERT_FALSE(steps.passes_strings());
  std::vector<int32_t> values(150);
  for (int i = 0; i < 150; ++i) values[i] = i;
  std::vector<tstring> keys(150);
  std::vector<uint8_t> none(150, 9);
  EXPECT_TRUE(steps.Strings(values.data(), values.size(), keys.data(), none.data()));
  for (int i = 0; i < 150; ++i) {
    ASSERT_EQ(keys[i], std::to_string(i + 1));
    ASSERT_EQ(none[i], i == 100);
  }
}

TEST(KeySteps, BucketizesByBoundaries) {
  PlanKey key = MakeKey({MakeStep(StepKind::kBucketize)});
  key.steps[0].boundaries = {0.0f, 1.5f, 1.5f};
  EXPECT_EQ(Keys<float>(key, tensorflow::DT_FLOAT, {-1.0f, 0.0f, 1.0f, 1.5f, NAN}),
            (std::vector<int64_t>{0, 1, 1, 3, 3}));
  EXPECT_EQ(Keys<double>(key, tensorflow::DT_DOUBLE, {1.4999999999}), (std::vector<int64_t>{1}));
  EXPECT_EQ(Keys<int32_t>(key, tensorflow::DT_INT32, {1, 2}), (std::vector<int64_t>{1, 3}));
}

TEST(KeySteps, RefusesStepsThatDoNotFit) {
  const PlanStep hash = MakeStep(StepKind::kFastHash, 10), text = MakeStep(StepKind::kToString),
                 mod = MakeStep(StepKind::kMod, 3);
  EXPECT_NE(Refused(MakeKey({hash}), tensorflow::DT_INT64), "");
  EXPECT_NE(Refused(MakeKey({mod}), tensorflow::DT_STRING), "");
  EXPECT_NE(Refused(MakeKey({text}), tensorflow::DT_STRING), "");
  EXPECT_NE(Refused(MakeKey({text, mod}), tensorflow::DT_INT64), "");
  EXPECT_NE(Refused(MakeKey({}), tensorflow::DT_FLOAT), "");
  EXPECT_NE(Refused(MakeKey({}), tensorflow::DT_BOOL), "");
  EXPECT_NE(Refused(MakeKey({MakeStep(StepKind::kMod, -3)}), tensorflow::DT_UINT64), "");
  EXPECT_EQ(Refused(MakeKey({text, hash, mod, text}), tensorflow::DT_INT64), "");
  PlanKey ignore = MakeKey({mod});
  ignore.ignore = IgnoreKind::kString;
  EXPECT_NE(Refused(ignore, tensorflow::DT_INT64), "");
  PlanKey negative = MakeKey({text});
  negative.ignore_negative = true;
  EXPECT_NE(Refused(negative, tensorflow::DT_INT64), "");
}

}  // namespace
}  // namespace processor
