// SPDX-License-Identifier: Apache-2.0
#include "src/codec/wire.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace processor {
namespace {

std::vector<WireField> ReadAll(std::string_view bytes, bool* ok) {
  std::vector<WireField> fields;
  WireReader reader(bytes);
  *ok = true;
  while (*ok && !reader.done()) {
    WireField field;
    *ok = reader.Next(&field);
    if (*ok) fields.push_back(field);
  }
  return fields;
}

bool Accepts(std::string_view bytes) {
  bool ok = false;
  ReadAll(bytes, &ok);
  return ok;
}

TEST(VarintTest, SurvivesARoundTrip) {
  std::vector<uint64_t> values = {0, 1, 127, 128, 300, 16383, 16384, std::numeric_limits<uint64_t>::max()};
  for (int bit = 0; bit < 64; ++bit) {
    values.push_back(uint64_t{1} << bit);
    values.push_back((uint64_t{1} << bit) - 1);
  }
  for (const uint64_t value : values) {
    char memory[10];
    WireWriter writer(memory);
    writer.Varint(value);
    const auto size = static_cast<size_t>(writer.position() - memory);
    EXPECT_EQ(size, VarintSize(value)) << value;
    uint64_t read = ~value;
    EXPECT_EQ(ReadVarint(memory, memory + size, &read), memory + size) << value;
    EXPECT_EQ(read, value);
    for (size_t cut = 0; cut < size; ++cut) EXPECT_EQ(ReadVarint(memory, memory + cut, &read), nullptr) << value;
  }
}

TEST(VarintTest, LongerThanTenBytesIsRefused) {
  const std::string eleven = std::string(10, '\x80') + '\x01';
  uint64_t value;
  EXPECT_EQ(ReadVarint(eleven.data(), eleven.data() + eleven.size(), &value), nullptr);
}

TEST(VarintTest, ReadsNonCanonicalForms) {
  const std::string bytes = std::string("\x81\x80\x80\x00", 4);
  uint64_t value = 0;
  EXPECT_EQ(ReadVarint(bytes.data(), bytes.data() + bytes.size(), &value), bytes.data() + 4);
  EXPECT_EQ(value, 1);
}

TEST(WireReaderTest, ReadsEveryWireType) {
  // 1: varint 150; 2: fixed64; 3: "abc"; 4: fixed32; 1000: "x"
  const std::string bytes = std::string("\x08\x96\x01", 3) +
                            "\x11"
                            "12345678" +
                            "\x1a\x03"
                            "abc" +
                            "\x25"
                            "1234" +
                            "\xc2\x3e\x01x";
  bool ok = false;
  const std::vector<WireField> fields = ReadAll(bytes, &ok);
  ASSERT_TRUE(ok);
  ASSERT_EQ(fields.size(), 5);
  EXPECT_EQ(fields[0].number, 1);
  EXPECT_EQ(fields[0].type, WireType::kVarint);
  EXPECT_EQ(FirstVarint(fields[0].payload), 150);
  EXPECT_EQ(fields[1].payload, "12345678");
  EXPECT_EQ(fields[2].payload, "abc");
  EXPECT_EQ(fields[3].payload, "1234");
  EXPECT_EQ(fields[4].number, 1000);
  EXPECT_EQ(fields[4].payload, "x");
}

TEST(WireReaderTest, EveryTruncationIsRefused) {
  const std::vector<std::string> fields = {std::string("\x08\x96\x01", 3),
                                           "\x11"
                                           "12345678",
                                           "\x1a\x03"
                                           "abc",
                                           "\x25"
                                           "1234",
                                           "\x0b\x10\x01\x0c",
                                           "\x12\x80\x01" + std::string(128, 'x')};
  for (const std::string& field : fields) {
    ASSERT_TRUE(Accepts(field));
    for (size_t cut = 1; cut < field.size(); ++cut) {
      EXPECT_FALSE(Accepts(std::string_view(field).substr(0, cut))) << cut << " bytes of field " << int{field[0]};
    }
  }
}

TEST(WireReaderTest, LengthBeyondTheEndIsRefused) {
  EXPECT_FALSE(
      Accepts("\x0a\x05"
              "abcd"));
  EXPECT_FALSE(
      Accepts("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
              "abcd"));
}

TEST(WireReaderTest, FieldNumberZeroAndUnknownTypesAreRefused) {
  EXPECT_FALSE(Accepts(std::string_view("\x02\x00", 2)));
  EXPECT_FALSE(Accepts(std::string_view("\x00\x00", 2)));
  EXPECT_FALSE(Accepts(std::string_view("\x0e\x00", 2)));
  EXPECT_FALSE(Accepts(std::string_view("\x0f\x00", 2)));
}

TEST(WireReaderTest, GroupsAreSkippedToTheirOwnEnd) {
  // group 1 { 2: 1, group 3 {} }, then 4: 5
  const std::string bytes = "\x0b\x10\x01\x1b\x1c\x0c\x20\x05";
  bool ok = false;
  const std::vector<WireField> fields = ReadAll(bytes, &ok);
  ASSERT_TRUE(ok);
  ASSERT_EQ(fields.size(), 2);
  EXPECT_EQ(fields[0].type, WireType::kStartGroup);
  EXPECT_EQ(fields[1].number, 4);
  EXPECT_FALSE(Accepts("\x0b\x14")) << "end of another group";
  EXPECT_FALSE(Accepts("\x0c")) << "end without a start";
}

TEST(WireReaderTest, RefusesDeepNesting) {
  EXPECT_TRUE(Accepts(std::string(100, '\x0b') + std::string(100, '\x0c')));
  EXPECT_FALSE(Accepts(std::string(101, '\x0b') + std::string(101, '\x0c')));
  EXPECT_FALSE(Accepts(std::string(10'000'000, '\x0b')));
}

TEST(WireReaderTest, SkipsConsecutiveStrings) {
  const std::string bytes =
      "\x32\x01"
      "a"
      "\x32\x02"
      "bc"
      "\x32\x03"
      "def"
      "\x08\x01";
  WireReader reader(bytes);
  WireField field;
  ASSERT_TRUE(reader.Next(&field));
  EXPECT_EQ(reader.SkipRow(&field), 2);
  EXPECT_EQ(field.payload, "def");
  ASSERT_TRUE(reader.Next(&field));
  EXPECT_EQ(field.number, 1);
  EXPECT_EQ(reader.SkipRow(&field), 0);
  EXPECT_TRUE(reader.done());
}

TEST(WireReaderTest, SkippingStringsStopsBeforeATruncatedOne) {
  const std::string bytes =
      "\x32\x01"
      "a"
      "\x32\x02"
      "b";
  WireReader reader(bytes);
  WireField field;
  ASSERT_TRUE(reader.Next(&field));
  EXPECT_EQ(reader.SkipRow(&field), 0);
  EXPECT_EQ(field.payload, "a");
  EXPECT_FALSE(reader.Next(&field));
}

TEST(WireWriterTest, WritesTheComputedSize) {
  for (const uint32_t number : {1u, 15u, 16u, 17u}) {
    for (const size_t size : {size_t{0}, size_t{127}, size_t{128}, size_t{20000}}) {
      const std::string content(size, 'c');
      std::string memory(BytesFieldSize(number, size), '\0');
      WireWriter writer(memory.data());
      writer.BytesField(number, content);
      EXPECT_EQ(writer.position(), memory.data() + memory.size());
      WireReader reader(memory);
      WireField field;
      ASSERT_TRUE(reader.Next(&field));
      EXPECT_EQ(field.number, number);
      EXPECT_EQ(field.payload, content);
    }
  }
}

}  // namespace
}  // namespace processor
