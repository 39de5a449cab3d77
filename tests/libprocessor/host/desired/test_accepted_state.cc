// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/accepted_state.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

std::string Document(int generation, const std::string& models) {
  return absl::StrCat(R"({"schema": 1, "generation": )", generation, R"(, "models": {)", models, "}}");
}

std::string ModelText(const std::string& name, const std::string& path, const std::string& more = "") {
  return absl::StrCat("\"", name, R"(": {"baseline": 1, "versions": {"1": {"path": ")", path, "\"}}", more, "}");
}

TEST(AcceptDesired, AValidDocumentIsTakenUnchanged) {
  AcceptedState accepted;
  const std::string text = Document(3, ModelText("a", "/a") + ", " + ModelText("b", "/b"));
  ASSERT_TRUE(AcceptDesired(text, "", "h", &accepted).ok());
  EXPECT_EQ(accepted.text, text);
  EXPECT_EQ(accepted.error, "");
  EXPECT_EQ(accepted.state.models.size(), 2u);
}

TEST(AcceptDesired, RefusedModelKeepsItsFormerState) {
  const std::string former =
      Document(3, ModelText("a", "/a") + ", " + ModelText("b", "/b") + ", " + ModelText("c", "/c"));
  const std::string wrong = R"(, "labels": {"l": 9})";
  const std::string text =
      Document(4, ModelText("a", "/new", wrong) + ", " + ModelText("b", "/new") + ", " + ModelText("d", "/d", wrong));
  AcceptedState accepted;
  ASSERT_TRUE(AcceptDesired(text, former, "h", &accepted).ok());
  EXPECT_EQ(accepted.state.generation, 4);
  ASSERT_EQ(accepted.state.models.size(), 2u);
  EXPECT_EQ(accepted.state.models.at("a").versions.at(1).path, "/a");
  EXPECT_EQ(accepted.state.models.at("b").versions.at(1).path, "/new");
  EXPECT_NE(accepted.error.find("models.a.labels.l: 9 found"), std::string::npos) << accepted.error;
  EXPECT_NE(accepted.error.find("models.d.labels.l: 9 found"), std::string::npos) << accepted.error;

  // What is written down says the same after a restart, and refuses nothing any more.
  AcceptedState again;
  ASSERT_TRUE(AcceptDesired(accepted.text, "", "h", &again).ok());
  EXPECT_EQ(again.error, "");
  EXPECT_EQ(again.text, accepted.text);
  EXPECT_EQ(again.state.models.at("a").versions.at(1).path, "/a");
  EXPECT_EQ(again.state.generation, 4);
}

TEST(AcceptDesired, RefusedVersionIsKeptWithItsFault) {
  AcceptedState accepted;
  ASSERT_TRUE(AcceptDesired(Document(1, ModelText("a", "relative")), "", "h", &accepted).ok());
  EXPECT_EQ(accepted.error, "") << "told where versions are told of";
  EXPECT_FALSE(accepted.state.models.at("a").versions.at(1).fault.ok());
}

TEST(AcceptDesired, AnInvalidDocumentChangesNothing) {
  AcceptedState accepted;
  accepted.text = "before";
  EXPECT_FALSE(AcceptDesired("{", Document(1, ""), "h", &accepted).ok());
  EXPECT_FALSE(AcceptDesired(R"({"schema": 2})", Document(1, ""), "h", &accepted).ok());
  EXPECT_EQ(accepted.text, "before");
}

TEST(AcceptDesired, ADamagedFormerStateIsIgnored) {
  const std::string text = Document(4, ModelText("a", "/new", R"(, "x": 1)"));
  for (const char* former : {"", "{", "[]", R"({"models": 1})", R"({"models": {"a": 5}})"}) {
    AcceptedState accepted;
    ASSERT_TRUE(AcceptDesired(text, former, "h", &accepted).ok()) << former;
    EXPECT_TRUE(accepted.state.models.empty()) << former;
    EXPECT_NE(accepted.error, "") << former;
  }
}

}  // namespace
}  // namespace processor
