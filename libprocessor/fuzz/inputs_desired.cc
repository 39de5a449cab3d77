// SPDX-License-Identifier: Apache-2.0
// States for fuzz_desired.cc.
#include <iterator>

#include "inputs.h"

namespace processor::fuzz {
namespace {

using Random = std::mt19937_64;

std::string Text(uint64_t number) { return std::to_string(number); }

// A member of a version with a value that is right, or nearly.
std::string Member(Random* random) {
  const char* const members[] = {
      R"("config": {"session_num": 2})",
      R"("config": {"session_num": 0, "cpusets": "0;1"})",
      R"("config": {"batching": {"mode": "timed"}})",
      R"("config": {"feature_store_type": "memory", "lock_timeout": 7})",
      R"("config": {"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]})",
      R"("config": {"checkpoint_poll_seconds": 1e400})",
      R"("config": {"x": 1, "x": 2})",
      R"("config": null)",
      R"("warmup_file": "w")",
      R"("cpuset": "0")",
      R"("cpuset": "0;1;2")",
      R"("batching": {"mode": "timed", "max_rows": 64, "max_wait_us": 10000001})",
      R"("limits": {"max_queue": 10, "max_in_flight": 20})",
      R"("priority": -1)",
      R"("traffic": false)",
      R"("path": "/twice")",
      R"("annotations": {"source": "/x", "deep": [{}]})",
      R"("files": {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "seal": null})",
      R"("surprise": "\ud83d\ude00")",
  };
  return members[(*random)() % std::size(members)];
}

std::string Model(Random* random) {
  const uint64_t versions = 1 + (*random)() % 4;
  std::string text = R"({"baseline": )" + Text((*random)() % 4 == 0 ? 9 : 1) + R"(, "versions": {)";
  for (uint64_t i = 1; i <= versions; ++i) {
    text += (i > 1 ? ", \"" : "\"") + Text(i) + R"(": {"path": "/m/)" + Text(i) + "\"";
    for (uint64_t n = (*random)() % 3; n > 0; --n) text += ", " + Member(random);
    text += "}";
  }
  text += "}";
  if ((*random)() % 2 == 0) text += R"(, "labels": {"stable": 1, "next": )" + Text((*random)() % 5) + "}";
  if ((*random)() % 2 == 0) {
    text += R"(, "routing": {"layer": "l", "key": {"input": "u"}, "arms": [{"version": )" + Text(1 + (*random)() % 3) +
            R"(, "offset": )" + Text((*random)() % 10001) + R"(, "weight": )" + Text((*random)() % 3000) + "}]}";
  }
  if ((*random)() % 4 == 0) text += R"(, "shadow": [{"version": 1, "weight": 5}], "annotations": {"last_good": 1})";
  return text + "}";
}

}  // namespace

const char* const kTarget = "fuzz_desired";

std::string RandomInput(int number, Random* random) {
  std::string text = R"({"schema": )" + Text(number % 8 == 7 ? 2 : 1) + R"(, "generation": )" + Text((*random)() % 99);
  if (number % 3 == 0) text += R"(, "memory_limit_bytes": 64000, "maintenance_cpus": "0-1")";
  if (number % 5 == 0) text += R"(, "layers": {"l": {"salt": "x"}})";
  text += R"(, "models": {)";
  const char* const names[] = {"m", "a", "b-1", "m", ".no", "n"};
  for (uint64_t n = (*random)() % 4, i = 0; i < n; ++i) {
    text += (i > 0 ? ", \"" : "\"") + std::string(names[(*random)() % std::size(names)]) + "\": " + Model(random);
  }
  text += "}";
  if (number % 6 == 0) text += R"(, "refused": {"m": {"3": {"status": "NOT_FOUND", "message": "x"}, "x": {}}})";
  if (number % 4 == 0) text += R"(, "hosts": {"host-0": {"cpusets": {"m/1": "0", "gone/2": "1"}}})";
  return text + "}";
}

std::string DamagedInput(const std::string& input, Random* random) {
  std::string damaged = input;
  const char* const pieces[] = {"{", "}", "[", "]", ",", "\"", "null", "1e400", "-", "\\u0000", "\\ud800", "[[[[", ":"};
  for (uint64_t n = 1 + (*random)() % 3; n > 0 && !damaged.empty(); --n) {
    const size_t at = (*random)() % damaged.size();
    switch ((*random)() % 4) {
      case 0:
        damaged[at] = static_cast<char>((*random)());
        break;
      case 1:
        damaged.insert(at, pieces[(*random)() % std::size(pieces)]);
        break;
      case 2:
        damaged.erase(at, 1 + (*random)() % 8);
        break;
      default:
        damaged.insert(at, damaged.substr(at, (*random)() % 60));
    }
  }
  return damaged;
}

}  // namespace processor::fuzz
