// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/config_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace processor {
namespace {

// Reads one key with `read`, and returns the fault.
template <typename Read>
absl::Status ReadOne(const std::string& text, Read&& read) {
  ConfigReader reader;
  if (absl::Status s = reader.Parse(text); !s.ok()) return s;
  read(reader);
  return reader.Finish();
}

void ExpectFault(const absl::Status& status, const char* word) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find(word), std::string::npos) << status << " lacks " << word;
}

TEST(ConfigReader, RefusesTextsThatAreNotObjects) {
  for (const char* text : {"", "{", "{\"a\": }", "nonsense", "{\"a\": 1} x", "{\"a\": \"\xff\"}"}) {
    ConfigReader reader;
    ExpectFault(reader.Parse(text), "not JSON");
  }
  for (const char* text : {"[]", "1", "\"text\"", "null"}) {
    ConfigReader reader;
    ExpectFault(reader.Parse(text), "expected an object");
  }
}

TEST(ConfigReader, RefusesDeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string text = "{\"session_num\": ";
    for (int i = 0; i < 1000000; ++i) text += open;
    ConfigReader reader;
    const absl::Status truncated = reader.Parse(text);
    EXPECT_TRUE(absl::IsInvalidArgument(truncated)) << truncated;
  }
  std::string text = "{\"session_num\": " + std::string(1000000, '[') + std::string(1000000, ']') + "}";
  ConfigReader reader;
  ExpectFault(reader.Parse(text), "nested deeper");
}

TEST(ConfigReader, AbsentKeysKeepDefaults) {
  int number = 7;
  bool flag = true;
  std::string text = "as it was";
  EXPECT_TRUE(ReadOne(R"({"a": null})", [&](ConfigReader& reader) {
                reader.Member("a").Integer(0, 1, &number);
                reader.Boolean("b", &flag);
                reader.Member("c").String(&text);
                EXPECT_FALSE(reader.Has("a"));
              }).ok());
  EXPECT_EQ(number, 7);
  EXPECT_TRUE(flag);
  EXPECT_EQ(text, "as it was");
}

TEST(ConfigReader, ChecksIntegers) {
  const auto read = [](const std::string& value, int* number) {
    return ReadOne("{\"n\": " + value + "}", [&](ConfigReader& reader) { reader.Member("n").Integer(-1, 10, number); });
  };
  for (const int expected : {-1, 0, 10}) {
    int number = 99;
    EXPECT_TRUE(read(std::to_string(expected), &number).ok());
    EXPECT_EQ(number, expected);
  }
  for (const char* value : {"-2", "11", "1.0", "1e0", "\"3\"", "true", "[]", "9223372036854775808",
                            "18446744073709551615", "-9223372036854775808", "123456789012345678901234567890"}) {
    int number = 99;
    const absl::Status status = read(value, &number);
    ExpectFault(status, "'n'");
    ExpectFault(status, "-1 to 10");
    EXPECT_EQ(number, 99) << value;
  }
}

TEST(ConfigReader, ChecksDoubles) {
  double number = 0;
  const auto read = [&](const std::string& value) {
    return ReadOne("{\"d\": " + value + "}", [&](ConfigReader& reader) { reader.Member("d").Number(0.5, 2, &number); });
  };
  EXPECT_TRUE(read("1").ok());
  EXPECT_EQ(number, 1.0);
  EXPECT_TRUE(read("0.5").ok());
  for (const char* value : {"0.4", "2.1", "\"1\"", "null1", "-1", "1e400"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(read(value))) << value;
  }
}

TEST(ConfigReader, ReadsFlagsAsBooleansOrNumbers) {
  const auto read = [](const std::string& value, bool* flag) {
    return ReadOne("{\"f\": " + value + "}", [&](ConfigReader& reader) { reader.Boolean("f", flag); });
  };
  for (const auto& [value, expected] : {std::pair("true", true), {"false", false}, {"1", true}, {"0", false}}) {
    bool flag = !expected;
    EXPECT_TRUE(read(value, &flag).ok()) << value;
    EXPECT_EQ(flag, expected) << value;
  }
  for (const char* value : {"2", "-1", "\"true\"", "1.0", "[]"}) {
    bool flag = false;
    ExpectFault(read(value, &flag), "true or false");
  }
}

TEST(ConfigReader, ChecksTextsAndChoices) {
  std::string text;
  ExpectFault(ReadOne(R"({"s": 1})", [&](ConfigReader& reader) { reader.Member("s").String(&text); }), "a string");
  ExpectFault(ReadOne(R"({"s": "a\u0000b"})", [&](ConfigReader& reader) { reader.Member("s").String(&text); }), "NUL");
  int choice = 5;
  const auto choose = [&](const char* json) {
    return ReadOne(json, [&](ConfigReader& reader) { reader.Member("p").Choice({"MOD", "RR"}, &choice); });
  };
  EXPECT_TRUE(choose(R"({"p": "RR"})").ok());
  EXPECT_EQ(choice, 1);
  ExpectFault(choose(R"({"p": "rr"})"), "\"MOD\", \"RR\"");
  ExpectFault(choose(R"({"p": 1})"), "'p'");
  EXPECT_EQ(choice, 1);
}

TEST(ConfigReader, NamesTheFirstFaultThenUnknownKeys) {
  int number = 0;
  ExpectFault(ReadOne(R"({"unknown": 1, "n": 99, "m": 99})",
                      [&](ConfigReader& reader) {
                        reader.Member("n").Integer(0, 1, &number);
                        reader.Member("m").Integer(0, 1, &number);
                      }),
              "'n'");
  ExpectFault(ReadOne(R"({"sesion_num": 1})", [&](ConfigReader& reader) { reader.Member("n").Integer(0, 1, &number); }),
              "'sesion_num': unknown");
  EXPECT_TRUE(ReadOne(R"({"x": [1]})", [&](ConfigReader& reader) { reader.Member("x"); }).ok());
}

TEST(ConfigReader, RequiresKeys) {
  EXPECT_TRUE(absl::IsNotFound(ReadOne("{}", [](ConfigReader& reader) { reader.Require("r"); })));
  EXPECT_TRUE(ReadOne(R"({"r": ""})", [](ConfigReader& reader) { reader.Require("r"); }).ok());
}

}  // namespace
}  // namespace processor
