// SPDX-License-Identifier: Apache-2.0
#include "src/ssd/guarded_copy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace elastic_training {
namespace {

constexpr size_t kPage = 4096, kPages = 3;

class GuardedCopyTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = open("guarded_copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    std::string text;
    for (size_t i = 0; i < kPages * kPage; ++i) text += static_cast<char>('a' + i % 23);
    ASSERT_EQ(write(file_, text.data(), text.size()), text.size());
    memory_ = static_cast<char*>(mmap(nullptr, text.size(), PROT_READ, MAP_SHARED, file_, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    copy_ = GuardedCopy::OfThread();
    ASSERT_NE(copy_, nullptr);
  }
  void TearDown() override {
    munmap(memory_, kPages * kPage);
    close(file_);
    unlink("guarded_copy");
  }

  int file_ = -1;
  char* memory_ = nullptr;
  GuardedCopy* copy_ = nullptr;
};

TEST_F(GuardedCopyTest, PutsPartsTogether) {
  const iovec parts[] = {{memory_ + 5, 3}, {memory_ + kPage - 2, 4}, {memory_ + 2 * kPage, 1}};
  std::string expected(memory_ + 5, 3);
  expected.append(memory_ + kPage - 2, 4).append(memory_ + 2 * kPage, 1);
  const char* const copied = copy_->Copy(parts, 3, 8);
  ASSERT_NE(copied, nullptr);
  EXPECT_EQ(std::string(copied, 8), expected);
}

TEST_F(GuardedCopyTest, RefusesMemoryOfAFileThatHasLostItsEnd) {
  ASSERT_EQ(ftruncate(file_, kPage), 0);
  const iovec lost{memory_ + 2 * kPage, 16}, kept{memory_, 16};
  EXPECT_EQ(copy_->Copy(&lost, 1, 16), nullptr);
  const iovec both[] = {kept, lost};
  EXPECT_EQ(copy_->Copy(both, 2, 32), nullptr);
  EXPECT_NE(copy_->Copy(&kept, 1, 16), nullptr);
}

}  // namespace
}  // namespace elastic_training
