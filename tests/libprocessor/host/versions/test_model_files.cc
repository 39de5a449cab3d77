// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/model_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "temporary_folder.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

class ModelFiles : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(folder() + "/" + name).parent_path());
    std::ofstream(folder() + "/" + name) << text;
  }
  std::string folder() const { return folder_.path() + "/model"; }
  std::string record() const { return folder_.path() + "/record.json"; }

  DesiredFiles Deployed() const {
    std::vector<ModelFile> files;
    EXPECT_TRUE(ListModelFiles(folder(), &files).ok());
    DesiredFiles deployed;
    deployed.seal = SealOf(files);
    EXPECT_TRUE(HashModelFiles(files, [] { return false; }, &deployed.sha256).ok());
    return deployed;
  }
  // How often Check() looked whether to give up: once at least for each file that it read.
  absl::Status Check(const DesiredFiles& deployed, int* looks) {
    *looks = 0;
    FileChecker checker(record());
    const auto give_up = [looks] { return ++*looks, false; };
    std::string seal;
    return checker.Check(folder(), deployed, give_up, &seal);
  }

  TemporaryFolder folder_;
};

TEST_F(ModelFiles, AreListedThroughLinksButNotRecursively) {
  Write("saved_model.pb", "graph");
  Write("variables/b", "1");
  Write("variables/a", "2");
  Write("assets/words", "3");
  fs::create_directory_symlink("..", folder() + "/assets/up");
  fs::create_symlink("../saved_model.pb", folder() + "/assets/link");
  std::vector<ModelFile> files;
  ASSERT_TRUE(ListModelFiles(folder(), &files).ok());
  std::vector<std::string> names;
  for (const ModelFile& file : files) names.push_back(file.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"saved_model.pb", "assets/link", "assets/words", "variables/a", "variables/b"}));
}

TEST_F(ModelFiles, AreReadOnlyIfTheSealDiffers) {
  Write("saved_model.pb", "graph");
  const DesiredFiles deployed = Deployed();
  int looks = 0;
  EXPECT_TRUE(Check(deployed, &looks).ok());
  EXPECT_EQ(looks, 0);
  Write("saved_model.pb", "graph");  // the same again, at another time
  EXPECT_TRUE(Check(deployed, &looks).ok());
  EXPECT_GT(looks, 0);
  EXPECT_TRUE(Check(deployed, &looks).ok());
  EXPECT_EQ(looks, 0) << "remembered, also by another process";
  EXPECT_TRUE(Check({deployed.sha256, ""}, &looks).ok());
}

TEST_F(ModelFiles, ThatDifferAreRefusedWithBothHashes) {
  Write("saved_model.pb", "graph");
  Write("variables/a", "12");
  const DesiredFiles deployed = Deployed();
  struct stat before;
  ASSERT_EQ(stat((folder() + "/variables/a").c_str(), &before), 0);
  Write("variables/a", "21");
  // Also where size and time of writing are put back.
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder() + "/variables/a").c_str(), times, 0), 0);
  int looks = 0;
  const absl::Status status = Check(deployed, &looks);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("SHA-256 " + Deployed().sha256 + " found, expected " + deployed.sha256),
            std::string::npos)
      << status;
  Write("more", "");
  EXPECT_FALSE(Check(deployed, &looks).ok()) << "a file more";
  fs::remove(folder() + "/more");
  Write("variables/a", "12");
  EXPECT_TRUE(Check(deployed, &looks).ok()) << "as it was";
}

TEST_F(ModelFiles, WithoutARecordAreNotChecked) {
  int looks = 0;
  EXPECT_TRUE(Check({}, &looks).ok());
  EXPECT_EQ(looks, 0);
}

TEST_F(ModelFiles, AnotherHardLinkToATableIsNoChange) {
  Write("assets/t.emb", "rows");
  Write("saved_model.pb", "graph");
  const DesiredFiles deployed = Deployed();
  fs::create_hard_link(folder() + "/assets/t.emb", folder_.path() + "/t.emb");
  EXPECT_EQ(Deployed().seal, deployed.seal);
  fs::create_hard_link(folder() + "/saved_model.pb", folder_.path() + "/graph");
  EXPECT_NE(Deployed().seal, deployed.seal) << "of other files it is read again";
}

TEST_F(ModelFiles, ThatDoNotExistAreRefusedWithoutWaiting) {
  Write("saved_model.pb", "graph");
  const DesiredFiles deployed = Deployed();
  ASSERT_EQ(mkfifo((folder() + "/pipe").c_str(), 0600), 0);
  int looks = 0;
  EXPECT_FALSE(Check(deployed, &looks).ok());
}

TEST_F(ModelFiles, WrittenDuringALoadAreReported) {
  Write("saved_model.pb", "graph");
  const DesiredFiles deployed = Deployed();
  FileChecker checker(record());
  std::string seal;
  ASSERT_TRUE(checker.Check(folder(), deployed, [] { return false; }, &seal).ok());
  EXPECT_TRUE(FileChecker::Unchanged(folder(), seal).ok());
  Write("saved_model.pb", "other");
  EXPECT_TRUE(absl::IsFailedPrecondition(FileChecker::Unchanged(folder(), seal)));
  EXPECT_TRUE(absl::IsCancelled(checker.Check(folder(), deployed, [] { return true; }, &seal)));
}

TEST_F(ModelFiles, DamagedRecordOnlyCausesAnotherRead) {
  Write("saved_model.pb", "graph");
  DesiredFiles deployed = Deployed();
  deployed.seal.clear();
  int looks = 0;
  for (const char* text : {"", "{", "[]", "5", R"({"/x": 1})", R"({"/x": ["a"]})"}) {
    std::ofstream(record()) << text;
    EXPECT_TRUE(Check(deployed, &looks).ok()) << text;
    EXPECT_GT(looks, 0) << text;
  }
}

}  // namespace
}  // namespace processor
