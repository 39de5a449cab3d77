// SPDX-License-Identifier: Apache-2.0
// The golden vectors of deltas: what they contain, and that the writer makes the same bytes of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "src/base/sha256.h"
#include "src/tables/delta_timeline.h"
#include "src/tables/delta_writer.h"

namespace processor {
namespace {

const std::string kGolden = PROCESSOR_GOLDEN "/delta";

nlohmann::json GoldenVectors() { return nlohmann::json::parse(std::ifstream(kGolden + "/expected.json")); }

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void ExpectMentions(const absl::Status& status, const nlohmann::json& texts) {
  for (const std::string text : texts) {
    EXPECT_NE(status.message().find(text), std::string::npos) << text << " in " << status;
  }
}

// Arrays are given as their bytes, or as the hash of these if they are long.
template <typename T>
void ExpectArray(const T* values, size_t count, const nlohmann::json& expected) {
  const std::string bytes(reinterpret_cast<const char*>(values), count * sizeof(T));
  if (expected.contains("hex")) {
    EXPECT_EQ(absl::BytesToHexString(bytes), expected["hex"].get<std::string>());
  } else {
    Sha256 hash;
    hash.Update(bytes);
    EXPECT_EQ(hash.Finish(), expected["sha256"].get<std::string>());
  }
}

void ExpectKeys(const DeltaKeys& keys, const nlohmann::json& expected) {
  if (expected.is_object()) return ExpectArray(keys.integers, keys.count, expected);
  ASSERT_EQ(keys.count, expected.size());
  for (size_t i = 0; i < keys.count; ++i) {
    if (keys.kind == DeltaKeyKind::kString) {
      EXPECT_EQ(absl::BytesToHexString(keys.string(i)), expected[i].get<std::string>());
    } else {
      EXPECT_EQ(keys.integers[i], expected[i].get<int64_t>());
    }
  }
}

void ExpectTable(const DeltaTable& table, const nlohmann::json& expected) {
  constexpr const char* kKinds[] = {"row_number", "int64", "string"};
  EXPECT_EQ(table.name, expected["name"].get<std::string>());
  EXPECT_EQ(kKinds[static_cast<size_t>(table.key_kind)], expected["key_kind"].get<std::string>());
  EXPECT_EQ(table.dim, expected["dim"].get<uint32_t>());
  ExpectKeys(table.changed, expected["changed"]);
  ExpectArray(table.rows, table.changed.count * table.dim, expected["rows"]);
  ExpectKeys(table.deleted, expected["deleted"]);
  EXPECT_EQ(std::vector<uint32_t>(table.default_numbers.begin(), table.default_numbers.end()),
            expected["default_numbers"].get<std::vector<uint32_t>>());
  ExpectArray(table.default_rows, table.default_numbers.size() * table.dim, expected["default_rows"]);
}

void ExpectHeader(const DeltaHeader& header, const nlohmann::json& expected) {
  EXPECT_EQ(HexText(header.lineage), expected["lineage"].get<std::string>());
  EXPECT_EQ(header.first_epoch, expected["first_epoch"].get<uint64_t>());
  EXPECT_EQ(header.last_epoch, expected["last_epoch"].get<uint64_t>());
  EXPECT_EQ(header.term, expected["term"].get<uint64_t>());
  EXPECT_EQ(header.event_time, expected["event_time"].get<int64_t>());
  EXPECT_EQ(header.write_time, expected["write_time"].get<int64_t>());
  EXPECT_EQ(HexText(header.previous), expected["previous"].get<std::string>());
  EXPECT_EQ(HexText(header.chain), expected["chain"].get<std::string>());
}

void ExpectContent(const DeltaSegment& segment, const nlohmann::json& expected) {
  ExpectHeader(segment.header(), expected);
  ASSERT_EQ(segment.tables().size(), expected["tables"].size());
  for (size_t i = 0; i < segment.tables().size(); ++i) ExpectTable(segment.tables()[i], expected["tables"][i]);
  ASSERT_EQ(segment.variables().size(), expected["variables"].size());
  for (size_t i = 0; i < segment.variables().size(); ++i) {
    const DeltaVariable& variable = segment.variables()[i];
    const nlohmann::json& wanted = expected["variables"][i];
    EXPECT_EQ(variable.name, wanted["name"].get<std::string>());
    EXPECT_EQ(variable.shape, wanted["shape"].get<std::vector<int64_t>>());
    size_t elements = 1;
    for (const int64_t size : variable.shape) elements *= static_cast<size_t>(size);
    ExpectArray(variable.data, elements, wanted["data"]);
  }
  ASSERT_EQ(segment.streams().size(), expected["streams"].size());
  for (size_t i = 0; i < segment.streams().size(); ++i) {
    EXPECT_EQ(segment.streams()[i].name, expected["streams"][i]["name"].get<std::string>());
    EXPECT_EQ(segment.streams()[i].position, expected["streams"][i]["position"].get<uint64_t>());
  }
  ASSERT_EQ(segment.chains().size(), expected["chains"].size());
  for (size_t i = 0; i < segment.chains().size(); ++i) {
    EXPECT_EQ(HexText(segment.chains()[i]), expected["chains"][i].get<std::string>());
  }
}

TEST(DeltaGolden, SegmentsHaveTheExpectedContentAndAreWrittenWithTheSameBytes) {
  const nlohmann::json expected = GoldenVectors()["segments"];
  ASSERT_GE(expected.size(), 10);
  for (const auto& [name, wanted] : expected.items()) {
    SCOPED_TRACE(name);
    const std::string path = kGolden + "/segments/" + name + ".delta";
    std::unique_ptr<const DeltaSegment> segment;
    const absl::Status status = DeltaSegment::Open(path, &segment);
    ASSERT_TRUE(status.ok()) << status;
    ExpectContent(*segment, wanted);
    DeltaContent content;
    content.tables.assign(segment->tables().begin(), segment->tables().end());
    content.variables.assign(segment->variables().begin(), segment->variables().end());
    content.streams.assign(segment->streams().begin(), segment->streams().end());
    content.chains = segment->chains();
    std::string bytes;
    ASSERT_TRUE(MakeDelta(segment->header(), content, &bytes).ok());
    EXPECT_TRUE(bytes == BytesOf(path)) << "other bytes";
  }
}

TEST(DeltaGolden, DamagedSegmentsAreRefusedWithTheFault) {
  const nlohmann::json expected = GoldenVectors()["damaged"];
  ASSERT_GE(expected.size(), 50);
  for (const auto& [name, wanted] : expected.items()) {
    SCOPED_TRACE(name);
    const std::string path = kGolden + "/damaged/" + name + ".delta";
    std::unique_ptr<const DeltaSegment> segment;
    const absl::Status status = DeltaSegment::Open(path, &segment);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(path), std::string::npos) << status;
    ExpectMentions(status, wanted["mentions"]);
  }
}

TEST(DeltaGolden, TimelinesAreReadUpToTheirFault) {
  const nlohmann::json expected = GoldenVectors();
  DeltaLineage lineage;
  std::string bytes;
  ASSERT_TRUE(absl::HexStringToBytes(expected["lineage"].get<std::string>(), &bytes) && bytes.size() == lineage.size());
  std::copy(bytes.begin(), bytes.end(), lineage.begin());
  ASSERT_GE(expected["timelines"].size(), 10);
  for (const auto& [name, wanted] : expected["timelines"].items()) {
    SCOPED_TRACE(name);
    const DeltaTimeline timeline(kGolden + "/timelines/" + name);
    TimelinePosition position = PositionOfExport(lineage);
    std::vector<std::string> read;
    absl::Status status;
    while (true) {
      std::unique_ptr<const DeltaSegment> segment;
      status = timeline.Next(position, &segment);
      if (segment == nullptr) break;
      read.push_back(std::filesystem::path(segment->path()).filename());
      position = PositionAfter(segment->header());
    }
    EXPECT_EQ(read, wanted["segments"].get<std::vector<std::string>>());
    EXPECT_EQ(position.epoch, wanted["epoch"].get<uint64_t>());
    EXPECT_EQ(HexText(position.chain), wanted["chain"].get<std::string>());
    EXPECT_EQ(position.term, wanted["term"].get<uint64_t>());
    EXPECT_EQ(status.ok(), wanted["fault"].is_null()) << status;
    if (wanted["fault"].is_null()) continue;
    ExpectMentions(status, wanted["fault"]["mentions"]);
    ExpectMentions(status, {wanted["fault"]["file"]});
  }
}

}  // namespace
}  // namespace processor
