// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/load_records.h"

#include <gtest/gtest.h>

#include <string>

namespace processor {
namespace {

using Standing = LoadRecords::Standing;

const LoadKey kGood = {"m", 1, "/models/m/1"}, kBad = {"m", 2, "/models/m/2"}, kOther = {"n", 1, "/models/n/1"};

LoadRecords Next(const LoadRecords& before, const std::string& now, bool on_purpose = false,
                 const std::string& boot = "boot") {
  return LoadRecords::Read(before.Json(), boot, on_purpose, now);
}

LoadRecords Fresh() { return LoadRecords::Read("", "boot", false, "t0"); }

TEST(LoadRecords, RefuseVersionThatWasAloneInTwoDeaths) {
  LoadRecords records = Fresh();
  EXPECT_EQ(records.StandingOf(kGood, true), Standing::kUnknown);
  records.Begin(kGood);
  records.End(kGood, true);
  EXPECT_EQ(records.StandingOf(kGood, true), Standing::kKnownGood);
  EXPECT_FALSE(records.WasGood(kGood)) << "before this process";
  records.Begin(kBad);

  records = Next(records, "t1");
  EXPECT_EQ(records.found(), "the host before died while it loaded model 'm' version 2");
  EXPECT_TRUE(records.WasGood(kGood));
  EXPECT_EQ(records.StandingOf(kGood, true), Standing::kKnownGood);
  EXPECT_EQ(records.StandingOf(kBad, false), Standing::kSuspect);
  EXPECT_TRUE(records.MayLoad(kBad, false).ok());
  records.Begin(kGood);
  records.End(kGood, true);
  records.Begin(kBad);

  records = Next(records, "t2");
  const absl::Status status = records.MayLoad(kBad, false);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("the host died twice while it loaded this version (t1, t2)"), std::string::npos);
  // That is remembered, and held against this entry alone.
  records = Next(records, "t3");
  EXPECT_EQ(records.found(), "");
  EXPECT_FALSE(records.MayLoad(kBad, false).ok());
  EXPECT_TRUE(records.MayLoad({"m", 2, "/models/m/another"}, false).ok());
  records.Keep({kGood, {"m", 2, "/models/m/another"}});
  EXPECT_TRUE(records.MayLoad(kBad, false).ok());
}

TEST(LoadRecords, BlameNoVersionIfSeveralWereLoading) {
  LoadRecords records = Fresh();
  records.Begin(kBad);
  records.Begin(kOther);
  for (const char* now : {"t1", "t2", "t3"}) {
    records = Next(records, now);
    EXPECT_EQ(records.StandingOf(kBad, false), Standing::kSuspect);
    EXPECT_EQ(records.StandingOf(kOther, false), Standing::kSuspect);
    EXPECT_TRUE(records.MayLoad(kBad, false).ok());
    records.Begin(kBad);
    records.Begin(kOther);
  }
  records.End(kOther, true);
  records = Next(records, "t4");
  EXPECT_EQ(records.StandingOf(kOther, false), Standing::kKnownGood);
  records.Begin(kBad);
  EXPECT_FALSE(Next(records, "t5").MayLoad(kBad, false).ok());
}

TEST(LoadRecords, ForgiveVersionThatLoadedInBetween) {
  LoadRecords records = Fresh();
  records.Begin(kBad);
  records = Next(records, "t1");
  records.Begin(kBad);
  records.End(kBad, false);
  EXPECT_EQ(records.StandingOf(kBad, false), Standing::kUnknown) << "it failed, and killed nobody";
  records.Begin(kBad);
  records = Next(records, "t2");
  EXPECT_TRUE(records.MayLoad(kBad, false).ok());
}

TEST(LoadRecords, NeverBlameABaselineThatServed) {
  LoadRecords records = Fresh();
  records.Begin(kGood);
  records.End(kGood, true);
  for (const char* now : {"t1", "t2", "t3"}) {
    records.Begin(kGood);
    records = Next(records, now);
    EXPECT_EQ(records.StandingOf(kGood, true), Standing::kKnownGood);
    EXPECT_TRUE(records.MayLoad(kGood, true).ok());
  }
  EXPECT_FALSE(records.MayLoad(kGood, false).ok()) << "as a variant it is like others";
}

TEST(LoadRecords, CountNoIntendedExit) {
  for (int i = 0; i < 4; ++i) {
    LoadRecords records = Fresh();
    records.Begin(kBad);
    records = Next(records, "t1");
    records.Begin(kBad);
    switch (i) {
      case 0:  // told to end
        records.Close();
        records.Begin(kOther);
        records.End(kBad, false);
        records = Next(records, "t2");
        break;
      case 1:  // killed by a supervisor
        records = Next(records, "t2", /*on_purpose=*/true);
        break;
      case 2:  // the machine went down
        records = Next(records, "t2", false, "another boot");
        break;
      case 3:
        records.End(kBad, true);
        records = Next(records, "t2");
        break;
    }
    EXPECT_EQ(records.found(), "") << i;
    EXPECT_TRUE(records.MayLoad(kBad, false).ok()) << i;
    EXPECT_EQ(records.StandingOf(kBad, false), i == 3 ? Standing::kKnownGood : Standing::kSuspect) << i;
    EXPECT_EQ(records.StandingOf(kOther, false), Standing::kUnknown) << i;
  }
}

TEST(LoadRecords, ReportChanges) {
  LoadRecords records = Fresh();
  EXPECT_FALSE(records.TakeChanged());
  records.Begin(kGood);
  EXPECT_TRUE(records.TakeChanged());
  EXPECT_FALSE(records.TakeChanged());
  records.End(kGood, true);
  EXPECT_TRUE(records.TakeChanged());
  records.Keep({kGood});
  EXPECT_FALSE(records.TakeChanged());
  records.Keep({});
  EXPECT_TRUE(records.TakeChanged());
}

TEST(LoadRecords, IgnoreAFileThatCannotBeRead) {
  for (const char* text :
       {"{", "[]", "null", "{\"schema\":2}", "{\"schema\":1,\"versions\":[{}]}",
        "{\"schema\":1,\"versions\":[{\"model\":\"m\",\"version\":2,\"identity\":\"x\",\"deaths\":7}]}"}) {
    LoadRecords records = LoadRecords::Read(text, "boot", false, "t1");
    EXPECT_NE(records.found(), "") << text;
    EXPECT_EQ(records.StandingOf(kBad, false), Standing::kUnknown) << text;
    EXPECT_EQ(records.Json(), Fresh().Json()) << text;
  }
}

}  // namespace
}  // namespace processor
