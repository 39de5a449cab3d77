// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/desired_state.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr char kFull[] = R"({
  "schema": 1, "generation": 42, "memory_limit_bytes": 64000000000, "maintenance_cpus": "0-1",
  "layers": {"page": {"salt": "2026-11"}, "unsalted": {}},
  "models": {
    "ranking": {
      "baseline": 3, "labels": {"stable": 3, "canary": 4},
      "routing": {"layer": "page", "key": {"input": "user_id"}, "paused": true,
                  "arms": [{"version": 4, "offset": 500, "weight": 1000}, {"version": 3, "offset": 0, "weight": 500},
                           {"version": 4, "offset": 9000, "weight": 0}]},
      "shadow": [{"version": 4, "weight": 500}],
      "versions": {
        "3": {"path": "/models/ranking/3"},
        "4": {"path": "/models/ranking/4", "config": {"session_num": 2}, "cpuset": "2-3", "warmup_file": "w",
              "batching": {"mode": "timed", "max_rows": 64, "max_wait_us": 500},
              "limits": {"max_queue": 10, "max_in_flight": 20}, "priority": -1, "traffic": false,
              "needs": ["op:RecNew"]}
      }
    },
    "retrieval": {"baseline": 1, "versions": {"1": {"path": "/r", "config": null, "cpuset": null}}}
  },
  "hosts": {"host-0": {"cpusets": {"ranking/4": "1"}}, "host-1": {"cpusets": {"ranking/3": "0"}}}
})";

TEST(DesiredState, ReadsEveryKey) {
  DesiredState state;
  const absl::Status status = ParseDesiredState(kFull, "host-0", &state);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(state.generation, 42);
  EXPECT_EQ(state.memory_limit_bytes, 64000000000);
  EXPECT_EQ(state.maintenance_cpus, "0-1");
  ASSERT_EQ(state.models.size(), 2u);

  const DesiredModel& ranking = state.models.at("ranking");
  EXPECT_EQ(ranking.baseline, 3);
  EXPECT_EQ(ranking.labels.at("canary"), 4);
  EXPECT_EQ(ranking.routing.salt, "2026-11");
  EXPECT_EQ(ranking.routing.key_input, "user_id");
  EXPECT_TRUE(ranking.routing.paused);
  ASSERT_EQ(ranking.routing.arms.size(), 2u) << "arms without weight are left out";
  EXPECT_EQ(ranking.routing.arms[0].version, 3) << "by offset";
  EXPECT_EQ(ranking.routing.arms[1].offset, 500);
  ASSERT_EQ(ranking.shadow.size(), 1u);
  EXPECT_EQ(ranking.shadow[0].weight, 500);
  const DesiredVersion& variant = ranking.versions.at(4);
  EXPECT_EQ(variant.config, R"({"session_num":2})");
  EXPECT_EQ(variant.cpuset, "1") << "this host's";
  EXPECT_EQ(variant.batching.mode, BatchMode::kTimed);
  EXPECT_EQ(variant.batching.max_rows, 64);
  EXPECT_EQ(variant.limits.max_queue, 10);
  EXPECT_EQ(variant.limits.max_in_flight, 20);
  EXPECT_EQ(variant.priority, -1);
  EXPECT_EQ(variant.needs, std::vector<std::string>({"op:RecNew"}));
  EXPECT_FALSE(variant.traffic);
  EXPECT_EQ(ranking.versions.at(3).cpuset, "") << "another host's";

  const DesiredModel& retrieval = state.models.at("retrieval");
  EXPECT_EQ(retrieval.routing.salt, "retrieval") << "of a model without a layer";
  EXPECT_FALSE(retrieval.routing.key_input.has_value());
  EXPECT_EQ(retrieval.versions.at(1).limits.max_queue, 1000);
  EXPECT_TRUE(retrieval.versions.at(1).traffic);
}

TEST(DesiredState, IdentityChangesWithSettingsThatNeedALoad) {
  DesiredVersion a;
  a.path = "/a";
  DesiredVersion b = a;
  b.cpuset = "1";
  b.limits.max_queue = 3;
  b.batching.mode = BatchMode::kZeroWait;
  b.traffic = false;
  b.priority = 7;
  EXPECT_EQ(a.Identity(), b.Identity());
  b = a, b.path = "/b";
  EXPECT_NE(a.Identity(), b.Identity());
  b = a, b.config = R"({"session_num":2})";
  EXPECT_NE(a.Identity(), b.Identity());
  b = a, b.warmup_file = "w";
  EXPECT_NE(a.Identity(), b.Identity());
}

struct Fault {
  const char* text;   // of a document, or of the model "m" with versions 1 and 2
  const char* place;  // that the message names
  const char* words;
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.text; }

class DesiredDocument : public testing::TestWithParam<Fault> {};
class DesiredModelFault : public testing::TestWithParam<Fault> {};
class DesiredVersionFault : public testing::TestWithParam<Fault> {};

bool Names(std::string_view message, const Fault& fault) {
  return message.find(fault.place) != std::string_view::npos && message.find(fault.words) != std::string_view::npos;
}

TEST_P(DesiredDocument, IsRefusedAsAWhole) {
  DesiredState state;
  state.generation = 7;
  const absl::Status status = ParseDesiredState(GetParam().text, "host-0", &state);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(Names(status.message(), GetParam())) << status;
  EXPECT_EQ(state.generation, 7) << "nothing of it is taken";
}

// A model "good" beside what is wrong.
std::string WithAnother(std::string text) {
  constexpr char kModels[] = R"("models": {)";
  const size_t at = text.find(kModels) + sizeof kModels - 1;
  return text.insert(at, R"("good": {"baseline": 1, "versions": {"1": {"path": "/good"}}}, )");
}

TEST_P(DesiredModelFault, RefusesThatModelAlone) {
  DesiredState state;
  const absl::Status status = ParseDesiredState(WithAnother(GetParam().text), "host-0", &state);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(state.generation, 1);
  ASSERT_EQ(state.models.size(), 1u);
  EXPECT_EQ(state.models.at("good").versions.at(1).path, "/good");
  ASSERT_EQ(state.faults.size(), 1u);
  EXPECT_EQ(state.faults[0].version, 0);
  EXPECT_TRUE(Names(state.faults[0].message, GetParam())) << state.faults[0].message;
}

TEST_P(DesiredVersionFault, RefusesThatVersionAlone) {
  DesiredState state;
  const absl::Status status = ParseDesiredState(WithAnother(GetParam().text), "host-0", &state);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(state.models.size(), 2u);
  const DesiredModel& model = state.models.at("m");
  EXPECT_EQ(model.baseline, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(model.versions.at(1).fault));
  EXPECT_TRUE(Names(model.versions.at(1).fault.message(), GetParam())) << model.versions.at(1).fault;
  EXPECT_TRUE(model.versions.at(2).fault.ok()) << "the other one stands";
  ASSERT_EQ(state.faults.size(), 1u);
  EXPECT_EQ(state.faults[0].model, "m");
  EXPECT_EQ(state.faults[0].version, 1);
  EXPECT_EQ(state.faults[0].message, model.versions.at(1).fault.message());
  DesiredVersion mended;
  mended.path = model.versions.at(1).path;
  EXPECT_NE(mended.Identity(), model.versions.at(1).Identity());
}

#define DOCUMENT(members) R"({"schema": 1, "generation": 1, )" members "}"
#define MODEL(members) \
  DOCUMENT(R"("models": {"m": {"versions": {"1": {"path": "/1"}, "2": {"path": "/2"}}, )" members "}}")
#define VERSION(members) \
  DOCUMENT(R"("models": {"m": {"baseline": 1, "versions": {"2": {"path": "/2"}, "1": {)" members "}}}}")

INSTANTIATE_TEST_SUITE_P(
    Documents, DesiredDocument,
    testing::Values(
        Fault{"", "desired.json: ", "not JSON"}, Fault{"[]", "desired.json: ", "expected an object"},
        Fault{R"({"schema": 1, "schema": 1})", "'schema'", "twice"},
        Fault{R"({"a": {"b": 1, "c": {"d": 1, "d": 2}}})", "'d'", "twice"},
        Fault{R"({"schema": 2})", "desired.json: schema: 2 found", "expected 1"},
        Fault{R"({"generation": 1, "models": {}})", "desired.json: schema: missing", "expected 1"},
        Fault{R"({"schema": 1, "models": {}})", "generation: missing", "expected"},
        Fault{DOCUMENT(R"("modells": {})"), "desired.json: modells: unknown key", "models"},
        Fault{DOCUMENT(R"("x": 1)"), "desired.json: x", "unknown"},
        Fault{R"({"schema": 1, "generation": 1})", "models: missing", "models by their names"},
        Fault{R"({"schema": 1, "generation": -1, "models": {}})", "generation: -1 found", "from 0"},
        Fault{R"({"schema": 1, "generation": 1.5, "models": {}})", "generation: 1.5 found", "an integer"},
        Fault{R"({"schema": 1, "generation": 18446744073709551615, "models": {}})", "generation", "to 9223"},
        Fault{DOCUMENT(R"("models": [])"), "models: [] found", "expected an object"},
        Fault{DOCUMENT(R"("models": {}, "layers": {"l": {"pepper": "x"}})"), "layers.l.pepper", "salt"},
        Fault{DOCUMENT(R"("models": {}, "memory_limit_bytes": "1G")"), "memory_limit_bytes: \"1G\"", "an integer"}));

INSTANTIATE_TEST_SUITE_P(
    Models, DesiredModelFault,
    testing::Values(
        Fault{DOCUMENT(R"("models": {"a b": {}})"), "models.a b", "the name of a model"},
        Fault{DOCUMENT(R"("models": {"m": null})"), "models.m: nothing found", "an object"},
        Fault{DOCUMENT(R"("models": {"m": {"baseline": 1}})"), "models.m.versions: missing", "versions"},
        Fault{DOCUMENT(R"("models": {"m": {"baseline": 1, "versions": {}}})"), "models.m.baseline", "one of"},
        Fault{VERSION(R"("path": "/a", "traffic": false)"), "models.m.baseline: 1 found", "with traffic"},
        Fault{MODEL(R"("baseline": 1, "labels": {"l": 1, "l": 2})"), "models.m: key 'labels': key 'l'", "twice"},
        Fault{MODEL(R"("baseline": 1, "annotations": [])"), "models.m.annotations: [] found", "an object"},
        Fault{MODEL(R"("x": 1)"), "models.m.x: unknown key", "baseline"},
        Fault{MODEL(R"("labels": {})"), "models.m.baseline: missing", "the number of a version"},
        Fault{MODEL(R"("baseline": 3)"), "models.m.baseline: 3 found", "versions 1, 2"},
        Fault{MODEL(R"("baseline": "1")"), "models.m.baseline: \"1\" found", "an integer"},
        Fault{MODEL(R"("baseline": 0)"), "models.m.baseline: 0 found", "from 1"},
        Fault{MODEL(R"("baseline": 1, "labels": {"l": 9})"), "models.m.labels.l: 9 found", "versions 1, 2"},
        Fault{MODEL(R"("baseline": 1, "labels": {"-l": 1})"), "models.m.labels.-l", "a label"},
        Fault{MODEL(R"("baseline": 1, "routing": {"arms": [{"version": 9, "offset": 0, "weight": 1}]})"),
              "models.m.routing.arms[0].version: 9 found", "versions 1, 2"},
        Fault{MODEL(R"("baseline": 1, "routing": {"arms": [{"version": 2, "offset": 9999, "weight": 2}]})"),
              "models.m.routing.arms[0]", "at most 10000"},
        Fault{MODEL(R"("baseline": 1, "routing": {"arms": [{"version": 2, "offset": 0, "weight": 10},
                                {"version": 1, "offset": 9, "weight": 1}]})"),
              "models.m.routing.arms[1]", "version 2"},
        Fault{MODEL(R"("baseline": 1, "routing": {"arms": {}})"), "models.m.routing.arms: {} found", "a list"},
        Fault{MODEL(R"("baseline": 1, "routing": {"key": {}})"), "models.m.routing.key.input: missing", "input"},
        Fault{MODEL(R"("baseline": 1, "routing": {"paused": 1})"), "models.m.routing.paused: 1 found", "true"},
        Fault{MODEL(R"("baseline": 1, "shadow": [{"version": 2, "weight": 10001}])"),
              "models.m.shadow[0].weight: 10001 found", "to 10000"}));

INSTANTIATE_TEST_SUITE_P(
    Versions, DesiredVersionFault,
    testing::Values(
        Fault{VERSION(R"("path": "/a", "path": "/b")"), "models.m.versions.1: key 'path'", "twice"},
        Fault{VERSION(R"("path": "/a", "config": {"x": 1, "x": 2})"), "versions.1: key 'config': key 'x'", "twice"},
        Fault{VERSION(R"("path": "/a", "config": {"session_num": 0})"), "versions.1: config key 'session_num'",
              "0 found"},
        Fault{VERSION(R"("path": "/a", "config": {"oss_endpoint": "x"})"), "config key 'oss_endpoint'", "set"},
        Fault{VERSION(R"("path": "/a", "batching": {"max_wait_us": 10000001})"), "batching.max_wait_us: 10000001",
              "to 10000000"},
        Fault{VERSION(R"("path": "/a", "files": {"seal": ""})"), "versions.1.files.sha256: missing", "64"},
        Fault{VERSION(R"("path": "/a", "files": {"sha256": "0"})"), "versions.1.files.sha256: \"0\" found", "64"},
        Fault{VERSION(R"("path": "/a", "annotations": 1)"), "versions.1.annotations: 1 found", "an object"},
        Fault{VERSION(""), "models.m.versions.1.path: missing", "SavedModel"},
        Fault{VERSION(R"("path": "")"), "models.m.versions.1.path: \"\" found", "not empty"},
        Fault{VERSION(R"("path": "a/b")"), "models.m.versions.1.path: \"a/b\" found", "begins with '/'"},
        Fault{VERSION(R"("path": "/a", "config": [])"), "models.m.versions.1.config: [] found", "an object"},
        Fault{VERSION(R"("path": "/a", "config": {"cpusets": "0"})"), "versions.1.config.cpusets", "of its own"},
        Fault{VERSION(R"("path": "/a", "batching": {"mode": "on"})"), "versions.1.batching.mode: \"on\"", "zero_wait"},
        Fault{VERSION(R"("path": "/a", "batching": {"max_rows": 0})"), "versions.1.batching.max_rows", "from 1"},
        Fault{VERSION(R"("path": "/a", "limits": {"max_queue": 0})"), "versions.1.limits.max_queue", "from 1"},
        Fault{VERSION(R"("path": "/a", "limits": {"queue": 1})"), "versions.1.limits.queue", "unknown"},
        Fault{VERSION(R"("path": "/a", "priority": 2147483648)"), "versions.1.priority", "to 2147483647"}));

TEST(DesiredState, VersionsAreNumbersInPlainDecimal) {
  for (const char* key : {"0", "01", "-1", "+1", "1.0", "a", "", "9223372036854775808", " 1"}) {
    DesiredState state;
    const absl::Status status = ParseDesiredState(
        absl::StrCat(R"({"schema":1,"generation":1,"models":{"m":{"baseline":1,"versions":{")", key, R"(":{}}}}})"),
        "h", &state);
    ASSERT_TRUE(status.ok()) << key << status;
    ASSERT_EQ(state.faults.size(), 1u) << key;
    EXPECT_NE(state.faults[0].message.find("the number of a version"), std::string::npos) << state.faults[0].message;
    EXPECT_TRUE(state.models.empty());
  }
}

TEST(DesiredState, CpusOfAnAbsentVersionAreIgnored) {
  DesiredState state;
  const absl::Status status =
      ParseDesiredState(DOCUMENT(R"("models": {"m": {"baseline": 1, "versions": {"1": {"path": "/1"}}}},
                  "hosts": {"h": {"cpusets": {"m/7": "0", "m/1": "1"}}})"),
                        "h", &state);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(state.models.at("m").versions.at(1).cpuset, "1");
  ASSERT_EQ(state.faults.size(), 1u);
  EXPECT_FALSE(state.faults[0].refuses_model());
  EXPECT_NE(state.faults[0].message.find("hosts.h.cpusets.m/7: no version that is there"), std::string::npos);
}

TEST(DesiredState, RefusedVersionsHaveTheirReasons) {
  DesiredState state;
  const absl::Status status = ParseDesiredState(DOCUMENT(R"("models": {},
                  "refused": {"m": {"5": {"status": "INVALID_ARGUMENT", "message": "no graph"}}})"),
                                                "h", &state);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(state.faults.empty());
  EXPECT_EQ(state.refused.at("m").at(5), absl::InvalidArgumentError("no graph"));
}

TEST(DesiredState, FurtherFaultsOfARefusedVersionAreIgnored) {
  for (const char* entry :
       {R"("5": {"status": "OK", "message": ""})", R"("5": {"status": "GONE", "message": ""})",
        R"("5": {"message": ""})", R"("5": {"status": "UNKNOWN"})", R"("0": {"status": "UNKNOWN", "message": ""})",
        R"("5": {"status": "UNKNOWN", "message": "", "more": 1})", R"("5": 7)"}) {
    DesiredState state;
    const std::string text = absl::StrCat(
        R"({"schema": 1, "generation": 1, "models": {"m": {"baseline": 1, "versions": {"1": {"path": "/1"}}}},
                  "refused": {"m": {)",
        entry, "}}}");
    const absl::Status status = ParseDesiredState(text, "h", &state);
    ASSERT_TRUE(status.ok()) << entry << status;
    EXPECT_EQ(state.models.size(), 1u) << entry;
    EXPECT_TRUE(state.refused.empty()) << entry;
    ASSERT_EQ(state.faults.size(), 1u) << entry;
    EXPECT_FALSE(state.faults[0].refuses_model());
    EXPECT_NE(state.faults[0].message.find("refused.m."), std::string::npos) << state.faults[0].message;
  }
}

std::string Nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string WithConfig(const std::string& config) {
  return absl::StrCat(
      R"({"schema":1,"generation":1,"models":{"m":{"baseline":2,"versions":{"1":{"path":"/1","config":)",
      R"({"timeline_path":)", config, R"(}},"2":{"path":"/2"}}}}})");
}

TEST(DesiredState, DeepNestingRefusesTheVersionThatHasIt) {
  for (const int depth : {26, 27, 100, 900}) {
    DesiredState state;
    const absl::Status status = ParseDesiredState(WithConfig(Nested(depth)), "h", &state);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(state.faults.size(), 1u) << depth;
    EXPECT_EQ(state.faults[0].version, 1);
    EXPECT_NE(state.faults[0].message.find(depth > 26 ? "key 'config': nested deeper than 32" : "key 'timeline_"),
              std::string::npos)
        << depth << state.faults[0].message;
    EXPECT_TRUE(state.models.at("m").versions.at(2).fault.ok());
  }
}

TEST(DesiredState, RefusesNumbersThatAreNotJson) {
  for (const char* number : {"1e400", "-1e400", "NaN", "Infinity", "01"}) {
    DesiredState state;
    const absl::Status status = ParseDesiredState(WithConfig(number), "h", &state);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << number;
    EXPECT_NE(status.message().find("not JSON"), std::string::npos) << status;
  }
}

TEST(DesiredState, DeepNestingIsRefused) {
  const std::string deep = std::string(100000, '[');
  DesiredState state;
  EXPECT_TRUE(absl::IsInvalidArgument(ParseDesiredState("{\"a\":" + deep, "h", &state)));
  EXPECT_TRUE(
      absl::IsInvalidArgument(ParseDesiredState("{\"a\":" + deep + std::string(100000, ']') + "}", "h", &state)));
}

}  // namespace
}  // namespace processor
