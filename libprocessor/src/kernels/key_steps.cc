// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/key_steps.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/kernels/string_hash.h"
#include "tensorflow/core/framework/types.h"

namespace processor {
namespace {

using tensorflow::tstring;

constexpr size_t kDigits = 20;  // of a number of 64 bits, with its sign
// To copy numbers takes as long as a step.
constexpr size_t kFewSteps = 3;

absl::Status Refused(std::string_view found, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(found, ", expected ", expected));
}

bool IsInteger(tensorflow::DataType type) {
  return type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64 || type == tensorflow::DT_UINT32 ||
         type == tensorflow::DT_UINT64;
}

bool Equal(const PlanStep& a, const PlanStep& b) {
  return a.kind == b.kind && a.first == b.first && a.second == b.second && a.third == b.third && a.key[0] == b.key[0] &&
         a.key[1] == b.key[1] && a.boundaries == b.boundaries;
}

bool IsHash(StepKind kind) {
  return kind == StepKind::kFastHash || kind == StepKind::kStrongHash || kind == StepKind::kLegacyHash;
}

size_t WriteNumber(int64_t number, bool is_unsigned, char* digits) {
  const std::to_chars_result end = is_unsigned ? std::to_chars(digits, digits + kDigits, static_cast<uint64_t>(number))
                                               : std::to_chars(digits, digits + kDigits, number);
  return static_cast<size_t>(end.ptr - digits);
}

// Texts, as the strings of a feature or the digits of numbers, that a hash asks for one by one.
class StringTexts {
 public:
  explicit StringTexts(const void* values) : values_(static_cast<const tstring*>(values)) {}
  template <class Hash>
  uint64_t Of(size_t i, const Hash& hash) const {
    return hash(values_[i].data(), values_[i].size());
  }

 private:
  const tstring* values_;
};

class NumberTexts {
 public:
  NumberTexts(const int64_t* numbers, bool is_unsigned) : numbers_(numbers), is_unsigned_(is_unsigned) {}
  template <class Hash>
  uint64_t Of(size_t i, const Hash& hash) const {
    char digits[kDigits];
    return hash(digits, WriteNumber(numbers_[i], is_unsigned_, digits));
  }

 private:
  const int64_t* numbers_;
  bool is_unsigned_;
};

template <class Texts>
void HashTexts(const Texts& texts, StepKind kind, const uint64_t seed[2], const FastMod& mod, size_t n, int64_t* keys) {
  const auto strong = [seed](const char* bytes, size_t size) { return StrongHash(seed, bytes, size); };
  switch (kind) {
    case StepKind::kFastHash:
      for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(mod.Unsigned(texts.Of(i, FastHash)));
      break;
    case StepKind::kStrongHash:
      for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(mod.Unsigned(texts.Of(i, strong)));
      break;
    default:
      for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(mod.Unsigned(texts.Of(i, LegacyHash)));
  }
}

template <typename T>
void WidenAs(const void* values, size_t n, int64_t* keys) {
  const T* src = static_cast<const T*>(values);
  for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(src[i]);
}

// As Bucketize compares: integers and floats as float, doubles as double.
template <typename Wide, typename T>
void BucketizeAs(const void* values, size_t n, const std::vector<float>& boundaries, int64_t* keys) {
  const T* src = static_cast<const T*>(values);
  for (size_t i = 0; i < n; ++i) {
    const auto value = static_cast<Wide>(src[i]);
    keys[i] = std::upper_bound(boundaries.begin(), boundaries.end(), value) - boundaries.begin();
  }
}

void FloorMod(const FastMod& mod, bool negative_divisor, size_t n, int64_t* keys) {
  if (!negative_divisor) {
    for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(mod.Floor(keys[i]));
    return;
  }
  // The remainder has the sign of the divisor.
  for (size_t i = 0; i < n; ++i) {
    const uint64_t rest = mod.Floor(keys[i]);
    keys[i] = static_cast<int64_t>(rest == 0 ? 0 : rest - mod.divisor());
  }
}

// Makes a number of the bits first, first + every, and so on, the first one as the lowest.
void TakeBits(int64_t first, int64_t count, int64_t every, size_t n, int64_t* keys) {
  if (every == 1 || count == 1) {
    const uint64_t mask = (uint64_t{1} << count) - 1;
    for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(static_cast<uint64_t>(keys[i]) >> first & mask);
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    uint64_t left = static_cast<uint64_t>(keys[i]) >> first, taken = 0;
    for (int64_t bit = 0; bit < count; ++bit, left >>= every) taken |= (left & 1) << bit;
    keys[i] = static_cast<int64_t>(taken);
  }
}

template <typename T>
void Clip(int64_t low, int64_t high, size_t n, int64_t* keys) {
  const auto least = static_cast<T>(low), most = static_cast<T>(high);
  for (size_t i = 0; i < n; ++i) {
    keys[i] = static_cast<int64_t>(std::max(least, std::min(static_cast<T>(keys[i]), most)));
  }
}

}  // namespace

absl::Status KeySteps::Make(const PlanKey& key, tensorflow::DataType type, KeySteps* steps) {
  *steps = KeySteps();
  steps->type_ = type;
  steps->value_size_ = static_cast<size_t>(tensorflow::DataTypeSize(type));
  bool text = type == tensorflow::DT_STRING;
  if (text) steps->value_size_ = sizeof(tstring);
  const bool real = type == tensorflow::DT_FLOAT || type == tensorflow::DT_DOUBLE;
  const std::string found = absl::StrCat("feature ", key.feature, " is ", tensorflow::DataTypeString(type));
  if (!text && !real && !IsInteger(type)) return Refused(found, "a string, an integer of 32 or 64 bits, or a float");
  if (real && (key.steps.empty() || key.steps[0].kind != StepKind::kBucketize)) {
    return Refused(absl::StrCat(found, " and not bucketized"), "an integer or a string");
  }
  if (real && key.ignore != IgnoreKind::kNothing) return Refused(absl::StrCat(found, " and has 'ignore'"), "none");
  if ((key.ignore == IgnoreKind::kString && !text) || (key.ignore == IgnoreKind::kInteger && text)) {
    return Refused(absl::StrCat(found, " and 'ignore' is not"), "one of its type");
  }
  steps->ignore_ = key.ignore;
  steps->ignored_string_ = key.ignored_string;
  steps->ignored_integer_ = key.ignored_integer;
  bool is_unsigned = type == tensorflow::DT_UINT64;
  for (const PlanStep& planned : key.steps) {
    if (absl::Status added = steps->Add(planned, &text, &is_unsigned); !added.ok()) return added;
  }
  steps->gives_strings_ = text;
  if (text && key.ignore_negative) return Refused("'ignore_negative' for strings", "numbers");
  steps->ignore_negative_ = key.ignore_negative && !is_unsigned;
  return absl::OkStatus();
}

absl::Status KeySteps::Add(const PlanStep& planned, bool* text, bool* is_unsigned) {
  if (IsHash(planned.kind) != *text) return Refused(*text ? "a step on strings" : "a hash of a number", "the other");
  Step step{planned.kind, planned.first, planned.second,    planned.third, {planned.key[0], planned.key[1]},
            FastMod(),    *is_unsigned,  planned.boundaries};
  const auto magnitude = static_cast<uint64_t>(planned.first);
  if (IsHash(planned.kind)) step.mod = FastMod(magnitude);
  if (planned.kind == StepKind::kMod) {
    if (*is_unsigned && planned.first < 0) return Refused("mod of uint64 by a negative number", "a positive one");
    step.mod = FastMod(planned.first < 0 ? 0 - magnitude : magnitude);
  }
  if (planned.kind == StepKind::kDivide) step.mod = FastMod(magnitude);
  if (planned.kind == StepKind::kBucketize && *is_unsigned) return Refused("bucketize of uint64", "another type");
  if (planned.kind == StepKind::kClip && *is_unsigned) {
    step.first = std::max<int64_t>(step.first, 0);
    step.second = std::max<int64_t>(step.second, 0);
  }
  *text = planned.kind == StepKind::kToString;
  // Sums and products of uint64 are uint64, and so are their digits; the rest gives less than 2^63, or is uint64 again.
  *is_unsigned = *is_unsigned && (planned.kind == StepKind::kAdd || planned.kind == StepKind::kMultiply ||
                                  planned.kind == StepKind::kToString || planned.kind == StepKind::kXorShift ||
                                  (planned.kind == StepKind::kDivide && planned.first == 1));
  steps_.push_back(std::move(step));
  return absl::OkStatus();
}

// Makes numbers of the values, and returns how many steps that took.
size_t KeySteps::Load(const void* values, size_t n, int64_t* keys) const {
  switch (type_) {
    case tensorflow::DT_STRING:
      HashTexts(StringTexts(values), steps_[0].kind, steps_[0].key, steps_[0].mod, n, keys);
      return 1;
    case tensorflow::DT_FLOAT:
      BucketizeAs<float, float>(values, n, steps_[0].boundaries, keys);
      return 1;
    case tensorflow::DT_DOUBLE:
      BucketizeAs<double, double>(values, n, steps_[0].boundaries, keys);
      return 1;
    case tensorflow::DT_INT32:
      WidenAs<int32_t>(values, n, keys);
      break;
    case tensorflow::DT_UINT32:
      WidenAs<uint32_t>(values, n, keys);
      break;
    case tensorflow::DT_UINT64:
      WidenAs<uint64_t>(values, n, keys);
      break;
    default:
      WidenAs<int64_t>(values, n, keys);
  }
  return 0;
}

void KeySteps::Apply(const Step& step, size_t n, int64_t* keys) const {
  // Sums and products wrap, which only unsigned numbers may.
  const auto value = static_cast<uint64_t>(step.first);
  switch (step.kind) {
    case StepKind::kMod:
      if (step.is_unsigned) {
        for (size_t i = 0; i < n; ++i)
          keys[i] = static_cast<int64_t>(step.mod.Unsigned(static_cast<uint64_t>(keys[i])));
      } else {
        FloorMod(step.mod, step.first < 0, n, keys);
      }
      break;
    case StepKind::kAdd:
      for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(static_cast<uint64_t>(keys[i]) + value);
      break;
    case StepKind::kMultiply:
      for (size_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(static_cast<uint64_t>(keys[i]) * value);
      break;
    case StepKind::kClip:
      if (step.is_unsigned) {
        Clip<uint64_t>(step.first, step.second, n, keys);
      } else {
        Clip<int64_t>(step.first, step.second, n, keys);
      }
      break;
    case StepKind::kDivide:
      if (step.is_unsigned) {
        for (size_t i = 0; i < n; ++i)
          keys[i] = static_cast<int64_t>(step.mod.Quotient(static_cast<uint64_t>(keys[i])));
      } else {
        for (size_t i = 0; i < n; ++i) keys[i] = step.mod.FloorQuotient(keys[i]);
      }
      break;
    case StepKind::kXorShift:
      for (size_t i = 0; i < n; ++i) {
        const auto bits = static_cast<uint64_t>(keys[i]);
        keys[i] = static_cast<int64_t>(bits ^ bits >> step.first);
      }
      break;
    case StepKind::kBits:
      TakeBits(step.first, step.second, step.third, n, keys);
      break;
    case StepKind::kWrapNegative:
      if (step.is_unsigned) break;
      for (size_t i = 0; i < n; ++i) keys[i] += keys[i] < 0 ? step.first : 0;
      break;
    case StepKind::kBucketize:
      BucketizeAs<float, int64_t>(keys, n, step.boundaries, keys);
      break;
    default:  // hashes take strings
      break;
  }
}

// `keys` are the values of an integer feature, before the steps.
bool KeySteps::MarkIgnored(const void* values, const int64_t* keys, size_t n, uint8_t* none) const {
  uint8_t any = 0;
  if (ignore_ == IgnoreKind::kString) {
    const tstring* strings = static_cast<const tstring*>(values);
    const size_t size = ignored_string_.size();
    for (size_t i = 0; i < n; ++i) {
      none[i] = strings[i].size() == size && std::memcmp(strings[i].data(), ignored_string_.data(), size) == 0;
      any |= none[i];
    }
  } else {
    for (size_t i = 0; i < n; ++i) {
      none[i] = keys[i] == ignored_integer_;
      any |= none[i];
    }
  }
  return any != 0;
}

bool KeySteps::Numbers(const void* values, size_t n, int64_t* keys, uint8_t* none) const {
  const bool any = Start(values, n, steps_.size(), keys, none);
  return Finish(steps_.size(), n, keys, none, any);
}

bool KeySteps::Start(const void* values, size_t n, size_t end, int64_t* keys, uint8_t* none) const {
  const size_t begin = Load(values, n, keys);
  const bool any = ignore_ != IgnoreKind::kNothing && MarkIgnored(values, keys, n, none);
  Run(begin, end, n, keys);
  return any;
}

void KeySteps::Run(size_t begin, size_t end, size_t n, int64_t* keys) const {
  for (size_t i = begin; i < end; ++i) {
    if (steps_[i].kind == StepKind::kToString) {
      if (i + 1 == steps_.size()) break;
      const Step& hash = steps_[i + 1];
      HashTexts(NumberTexts(keys, steps_[i].is_unsigned), hash.kind, hash.key, hash.mod, n, keys);
      ++i;
    } else {
      Apply(steps_[i], n, keys);
    }
  }
}

bool KeySteps::Finish(size_t begin, size_t n, int64_t* keys, uint8_t* none, bool any) const {
  Run(begin, steps_.size(), n, keys);
  if (!ignore_negative_) return any;
  if (!any) std::memset(none, 0, n);
  uint8_t negative = 0;
  for (size_t k = 0; k < n; ++k) {
    none[k] |= keys[k] < 0;
    negative |= none[k];
  }
  return negative != 0;
}

void KeySteps::ShareWith(const PlanKey& before, const PlanKey& key) {
  const bool same_values = before.feature == key.feature && before.layout == key.layout &&
                           before.structure == key.structure && before.ignore == key.ignore &&
                           before.ignored_string == key.ignored_string && before.ignored_integer == key.ignored_integer;
  size_t same = 0;
  const size_t most = same_values ? std::min(before.steps.size(), key.steps.size()) : 0;
  while (same < most && Equal(before.steps[same], key.steps[same])) ++same;
  // Digits are made and hashed at once.
  if (same > 0 && key.steps[same - 1].kind == StepKind::kToString) --same;
  shared_ = same >= kFewSteps && !gives_strings_ ? same : 0;
}

bool KeySteps::Strings(const void* values, size_t n, tstring* keys, uint8_t* none) const {
  if (passes_strings()) return ignore_ != IgnoreKind::kNothing && MarkIgnored(values, nullptr, n, none);
  constexpr size_t kChunk = 64;
  int64_t numbers[kChunk];
  const auto* bytes = static_cast<const char*>(values);
  bool any = false;
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t count = std::min(kChunk, n - begin);
    const bool some = Numbers(bytes + begin * value_size_, count, numbers, none + begin);
    // All or nothing is marked: not only a chunk that has one.
    if (!some) std::memset(none + begin, 0, count);
    any |= some;
    for (size_t i = 0; i < count; ++i) {
      char digits[kDigits];
      keys[begin + i].assign(digits, WriteNumber(numbers[i], steps_.back().is_unsigned, digits));
    }
  }
  return any;
}

}  // namespace processor
