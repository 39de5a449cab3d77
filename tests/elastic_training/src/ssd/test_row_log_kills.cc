// SPDX-License-Identifier: Apache-2.0
// Processes that are killed while they append, reclaim or promise: what was promised last is there afterwards.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "log_fixture.h"

namespace elastic_training {
namespace {

// Runs `body` in a process, which ends with what it returns.
pid_t Start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int StatusOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Waits until a checkpoint of this token or a later one is there, or too long.
void WaitForToken(const std::string& saved, uint64_t token) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < end) {
    if (std::filesystem::exists(saved) && nlohmann::json::parse(std::ifstream(saved))["token"] >= token) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class RowLogKills : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer lets no fork of a process with threads start others";
#endif
  }
};

TEST_F(RowLogKills, LoseNothingThatWasPromised) {
  const std::string folder = NewFolder("kills"), saved = folder + "/saved";
  std::mt19937_64 random(11);
  uint64_t resumed_token = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = Start([&] {
      std::mt19937_64 steps(round);
      KnownLog known(SmallLog(folder));
      uint64_t token = std::filesystem::exists(saved) ? known.Load(saved) : 0;
      if (known.Wrong() != 0) return 3;
      for (;;) {
        for (int step = 0; step < 40; ++step) known.Step(&steps, 1500);
        known.Save(saved, ++token);
      }
    });
    WaitForToken(saved, resumed_token + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 30000));
    kill(child, SIGKILL);
    const int status = StatusOf(child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": rows were lost or wrong: " << WEXITSTATUS(status);
    KnownLog known(SmallLog(folder));
    const uint64_t token = known.Load(saved);
    EXPECT_GT(token, resumed_token);
    resumed_token = token;
    EXPECT_EQ(known.Wrong(), 0);
    EXPECT_GT(known.rows.size(), 0);
  }
}

TEST_F(RowLogKills, AFullDeviceIsAnErrorAndLosesNothing) {
  const std::string folder = NewFolder("full");
  const pid_t child = Start([&] {
    signal(SIGXFSZ, SIG_IGN);
    LogSettings settings = SmallLog(folder);
    KnownLog known(settings);
    for (uint64_t key = 0; key < 300; ++key) known.Put(key);
    const rlimit none{4096, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &none);
    bool full = false;
    try {
      for (uint64_t key = 300; key < 3000; ++key) known.Put(key);
    } catch (const SsdError& error) {
      full = error.kind() == SsdError::Kind::kFull && std::string(error.what()).find("free space") != std::string::npos;
    }
    if (!full) return 1;
    if (known.Wrong() != 0) return 2;
    const rlimit again{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &again);
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    for (uint64_t key = 0; key < 1000; ++key) known.Put(key);
    return known.Wrong() == 0 ? 0 : 3;
  });
  EXPECT_EQ(StatusOf(child), 0);
}

}  // namespace
}  // namespace elastic_training
