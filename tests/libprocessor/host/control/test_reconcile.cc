// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/reconcile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

DesiredVersion At(const std::string& path) {
  DesiredVersion version;
  version.path = path;
  return version;
}

// A desired state of one model "m" whose version N is in "/N".
DesiredState Desire(int64_t baseline, const std::vector<int64_t>& versions) {
  DesiredState state;
  DesiredModel& model = state.models["m"];
  model.baseline = baseline;
  for (int64_t number : versions) model.versions[number] = At(absl::StrCat("/", number));
  return state;
}

VersionInstance Is(uint64_t id, int64_t number, VersionState state, std::string path = "") {
  if (path.empty()) path = absl::StrCat("/", number);
  return {id, "m", number, At(path).Identity(), state, false};
}

std::vector<int64_t> Numbers(const std::vector<VersionToLoad>& loads) {
  std::vector<int64_t> numbers;
  for (const VersionToLoad& load : loads) numbers.push_back(load.number);
  return numbers;
}

using Ids = std::vector<uint64_t>;

TEST(Reconcile, LoadsBaselinesFirst) {
  DesiredState desired = Desire(2, {1, 2, 3});
  desired.models["a"].baseline = 9;
  desired.models["a"].versions[8] = At("/8");
  desired.models["a"].versions[9] = At("/9");
  const Plan plan = Reconcile(desired, {}, {});
  EXPECT_EQ(Numbers(plan.load), (std::vector<int64_t>{9, 2, 8, 1, 3}));
  EXPECT_FALSE(plan.models.at("m").baseline.has_value());
}

TEST(Reconcile, ModelsWithoutBaselineLoadBeforeModelsThatSwitch) {
  DesiredState desired = Desire(2, {1, 2});
  desired.models["z"].baseline = 5;
  desired.models["z"].versions[5] = At("/5");
  const Plan plan = Reconcile(desired, {Is(1, 1, VersionState::kReady)}, {{"m", 1}});
  EXPECT_EQ(Numbers(plan.load), (std::vector<int64_t>{5, 2}));
}

TEST(Reconcile, PlansNothingForDesiredState) {
  const Plan plan = Reconcile(Desire(1, {1, 2, 3, 4}),
                              {Is(1, 1, VersionState::kReady), Is(2, 2, VersionState::kLoading),
                               Is(3, 3, VersionState::kFailed), Is(4, 4, VersionState::kWarming)},
                              {{"m", 1}});
  EXPECT_TRUE(plan.load.empty());
  EXPECT_TRUE(plan.retire.empty() && plan.give_up.empty() && plan.forget.empty());
  EXPECT_EQ(plan.models.at("m").baseline, 1u);
  EXPECT_EQ(plan.models.at("m").serving, (std::map<int64_t, uint64_t>{{1, 1}}));
  EXPECT_EQ(plan.models.at("m").incoming, (std::map<int64_t, uint64_t>{{2, 2}, {3, 3}, {4, 4}}));
}

TEST(Reconcile, EndsVersionsThatAreNotDesired) {
  const Plan plan =
      Reconcile(Desire(1, {1}),
                {Is(1, 1, VersionState::kReady), Is(2, 2, VersionState::kReady), Is(3, 3, VersionState::kLoading),
                 Is(4, 4, VersionState::kWarming), Is(5, 5, VersionState::kFailed), Is(6, 6, VersionState::kDraining)},
                {{"m", 1}});
  EXPECT_EQ(plan.retire, (Ids{2}));
  EXPECT_EQ(plan.give_up, (Ids{3, 4}));
  EXPECT_EQ(plan.forget, (Ids{5}));
}

TEST(Reconcile, FormerBaselineServesUntilTheNewOneIsReady) {
  std::vector<VersionInstance> instances = {Is(1, 1, VersionState::kReady), Is(2, 2, VersionState::kLoading)};
  // Version 1 is not even desired any more.
  Plan plan = Reconcile(Desire(2, {2}), instances, {{"m", 1}});
  EXPECT_EQ(plan.models.at("m").baseline, 1u);
  EXPECT_TRUE(plan.retire.empty());
  EXPECT_TRUE(plan.models.at("m").serving.empty()) << "but nobody may ask for it by its number";

  instances[1].state = VersionState::kFailed;
  plan = Reconcile(Desire(2, {2}), instances, {{"m", 1}});
  EXPECT_EQ(plan.models.at("m").baseline, 1u);

  instances[1].state = VersionState::kReady;
  plan = Reconcile(Desire(2, {2}), instances, {{"m", 1}});
  EXPECT_EQ(plan.models.at("m").baseline, 2u);
  EXPECT_EQ(plan.retire, (Ids{1}));
}

TEST(Reconcile, FormerBaselineEndsWithItsModel) {
  const Plan plan = Reconcile(DesiredState(), {Is(1, 1, VersionState::kReady)}, {{"m", 1}});
  EXPECT_EQ(plan.retire, (Ids{1}));
  EXPECT_TRUE(plan.models.empty());
}

TEST(Reconcile, ReplacesAVersionBesideTheOldOne) {
  DesiredState desired = Desire(1, {1});
  desired.models["m"].versions[1].path = "/new";
  std::vector<VersionInstance> instances = {Is(1, 1, VersionState::kReady)};
  Plan plan = Reconcile(desired, instances, {{"m", 1}});
  EXPECT_EQ(Numbers(plan.load), (std::vector<int64_t>{1}));
  EXPECT_EQ(plan.models.at("m").serving.at(1), 1u);
  EXPECT_EQ(plan.models.at("m").baseline, 1u);
  EXPECT_TRUE(plan.retire.empty());

  instances.push_back(Is(2, 1, VersionState::kLoading, "/new"));
  plan = Reconcile(desired, instances, {{"m", 1}});
  EXPECT_TRUE(plan.load.empty() && plan.retire.empty());
  EXPECT_EQ(plan.models.at("m").incoming.at(1), 2u);

  instances.back().state = VersionState::kFailed;
  plan = Reconcile(desired, instances, {{"m", 1}});
  EXPECT_EQ(plan.models.at("m").serving.at(1), 1u) << "if the other fails, it stays";
  EXPECT_TRUE(plan.load.empty() && plan.retire.empty());

  instances.back().state = VersionState::kReady;
  plan = Reconcile(desired, instances, {{"m", 1}});
  EXPECT_EQ(plan.models.at("m").serving.at(1), 2u);
  EXPECT_EQ(plan.models.at("m").baseline, 2u);
  EXPECT_EQ(plan.retire, (Ids{1}));
}

TEST(Reconcile, GivesUpLoadsThatAreNoLongerDesired) {
  DesiredState desired = Desire(1, {1});
  desired.models["m"].versions[1].path = "/newer";
  const Plan plan =
      Reconcile(desired, {Is(1, 1, VersionState::kReady), Is(2, 1, VersionState::kLoading, "/new")}, {{"m", 1}});
  EXPECT_EQ(plan.give_up, (Ids{2}));
  EXPECT_EQ(Numbers(plan.load), (std::vector<int64_t>{1}));
  EXPECT_EQ(plan.models.at("m").serving.at(1), 1u);
}

TEST(Reconcile, RetriesWhenDue) {
  std::vector<VersionInstance> instances = {Is(1, 1, VersionState::kFailed)};
  EXPECT_TRUE(Reconcile(Desire(1, {1}), instances, {}).load.empty());
  instances[0].retry_due = true;
  const Plan plan = Reconcile(Desire(1, {1}), instances, {});
  ASSERT_EQ(plan.load.size(), 1u);
  EXPECT_EQ(plan.load[0].instead_of, 1u);
}

TEST(Reconcile, RetriesFailedVersionWhenItsEntryChanges) {
  DesiredState desired = Desire(1, {1});
  desired.models["m"].versions[1].config = R"({"session_num":2})";
  const Plan plan = Reconcile(desired, {Is(1, 1, VersionState::kFailed)}, {});
  ASSERT_EQ(plan.load.size(), 1u);
  EXPECT_FALSE(plan.load[0].instead_of.has_value());
  EXPECT_EQ(plan.forget, (Ids{1}));
}

TEST(Reconcile, DrainingVersionsDoNotServeAgain) {
  const Plan plan = Reconcile(Desire(1, {1}), {Is(1, 1, VersionState::kDraining)}, {});
  EXPECT_EQ(Numbers(plan.load), (std::vector<int64_t>{1}));
  EXPECT_TRUE(plan.models.at("m").serving.empty());
}

TEST(Reconcile, RollbackToALoadedBaselineIsImmediate) {
  // A roll-back: the version before is there, without having been the baseline for a while.
  const Plan plan =
      Reconcile(Desire(1, {1, 2}), {Is(1, 1, VersionState::kReady), Is(2, 2, VersionState::kReady)}, {{"m", 2}});
  EXPECT_EQ(plan.models.at("m").baseline, 1u);
  EXPECT_TRUE(plan.load.empty() && plan.retire.empty());
}

}  // namespace
}  // namespace processor
