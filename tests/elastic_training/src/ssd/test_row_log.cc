// SPDX-License-Identifier: Apache-2.0
#include "src/ssd/row_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "log_fixture.h"

namespace elastic_training {
namespace {

namespace fs = std::filesystem;

SsdError ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const SsdError& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return SsdError(SsdError::Kind::kDevice, "");
}

bool Says(const SsdError& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

// Puts another descriptor in the place of that of a file which the log has open.
void Replace(const std::string& path, const char* with) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    if (fs::read_symlink(entry.path(), none) != fs::absolute(path)) continue;
    const int other = open(with, O_RDWR);
    ASSERT_GE(other, 0);
    dup2(other, std::stoi(entry.path().filename()));
    close(other);
    return;
  }
  FAIL() << path << " is not open";
}

TEST(RowLog, HasWhatAMapHasThroughRandomOperations) {
  KnownLog known(SmallLog(NewFolder("random")));
  std::mt19937_64 random(7);
  for (int step = 0; step < 2000; ++step) {
    known.Step(&random, 4000);
    if (step % 500 == 0) {
      EXPECT_EQ(known.Wrong(), 0);
    }
  }
  EXPECT_EQ(known.Wrong(), 0);
  const nlohmann::json stats = known.log.Stats();
  EXPECT_EQ(stats["rows"], known.rows.size());
  EXPECT_GT(stats["reclaimed_files"], 20);
  // There are few files here: the ones that are filled and reclaimed come on top.
  EXPECT_LE(stats["bytes"],
            1.4 * static_cast<double>(known.rows.size() * known.log.record_bytes()) + 2 * kLogFileBytes);
}

TEST(RowLog, ReadsWhileFilesAreReclaimed) {
  KnownLog known(SmallLog(NewFolder("threads")));
  std::mt19937_64 random(8);
  for (int step = 0; step < 300; ++step) known.Step(&random, 2000);
  std::vector<LogPlace> places;
  std::vector<uint64_t> keys;
  std::map<uint64_t, uint32_t> versions;
  for (const auto& [key, row] : known.rows) {
    keys.push_back(key);
    places.push_back(row.place);
    versions[key] = row.version;
  }
  std::atomic<bool> ends{false};
  size_t wrong = 0, rounds = 0;
  std::thread reader([&] {
    std::vector<float> values(keys.size() * kLogValues);
    std::vector<uint8_t> found(keys.size());
    for (; !ends || rounds == 0; ++rounds) {
      known.log.Read(places.data(), keys.data(), keys.size(), values.data(), kLogValues, found.data());
      for (size_t i = 0; i < keys.size(); ++i) {
        const std::vector<float> expected = KnownLog::Values(keys[i], versions[keys[i]]);
        wrong += found[i] != 0 && !std::equal(expected.begin(), expected.end(), &values[i * kLogValues]);
      }
    }
  });
  for (int step = 0; step < 300; ++step) known.Step(&random, 2000);
  ends = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, PassesOverAllRowsInTheOrderOfFiles) {
  KnownLog known(SmallLog(NewFolder("scan")));
  std::mt19937_64 random(12);
  for (int step = 0; step < 300; ++step) known.Step(&random, 3000);
  // All is written then.
  known.log.Pin(1);
  known.log.Promise(1);
  std::map<uint64_t, LogPlace> passed;
  std::vector<float> values(kLogValues);
  LogPlace last = 0;
  size_t parts = 0;
  for (LogScan scan; known.log.ReadNext(&scan); ++parts) {
    EXPECT_TRUE(known.log.IsCurrent(scan));
    for (size_t i = 0; i < scan.places.size(); ++i) {
      const uint64_t key = scan.headers[i].key();
      EXPECT_TRUE(passed.emplace(key, scan.places[i]).second);
      EXPECT_GE(scan.places[i], last);
      last = scan.places[i];
      ASSERT_EQ(known.rows.count(key), 1);
      EXPECT_EQ(scan.headers[i].touch, known.rows[key].version);
      scan.values(i, &values);
      EXPECT_EQ(values, KnownLog::Values(key, known.rows[key].version));
    }
  }
  EXPECT_GE(parts, 3);
  EXPECT_EQ(passed.size(), known.rows.size());
  // What is no row any more is left out.
  const LogPlace place = known.rows.begin()->second.place;
  LogScan scan;
  known.log.Drop(place);
  for (size_t rows = 0;; rows += scan.places.size()) {
    if (known.log.ReadNext(&scan)) continue;
    EXPECT_EQ(rows + 1, known.rows.size());
    break;
  }
}

TEST(RowLog, KeepsTheFilesOfACheckpointUntilItIsForgotten) {
  const std::string folder = NewFolder("pins");
  KnownLog known(SmallLog(folder));
  std::mt19937_64 random(9);
  for (int step = 0; step < 200; ++step) known.Step(&random, 1000);
  known.log.Pin(1);
  const std::map<uint64_t, KnownRow> then = known.rows;
  for (int step = 0; step < 500; ++step) known.Step(&random, 1000);
  EXPECT_GT(known.log.Stats()["pinned_bytes"], 0);
  known.log.Promise(1);
  std::swap(known.rows, const_cast<std::map<uint64_t, KnownRow>&>(then));
  EXPECT_EQ(known.Wrong(), 0);
  known.log.Forget(1);
  EXPECT_EQ(known.log.Stats()["pinned_bytes"], 0);
}

TEST(RowLog, ResumesAnyPromise) {
  const std::string folder = NewFolder("resume");
  std::mt19937_64 random(10);
  std::map<uint64_t, KnownRow> first, second;
  std::string run;
  {
    KnownLog known(SmallLog(folder));
    run = known.log.run();
    for (auto* then : {&first, &second}) {
      for (int step = 0; step < 200; ++step) known.Step(&random, 1000);
      known.log.Pin(then == &first ? 1 : 2);
      *then = known.rows;
      for (int step = 0; step < 50; ++step) known.Step(&random, 1000);
      known.log.Promise(then == &first ? 1 : 2);
    }
    for (int step = 0; step < 200; ++step) known.Step(&random, 1000);
  }
  for (const uint64_t token : {uint64_t{2}, uint64_t{1}}) {
    KnownLog known(SmallLog(folder));
    EXPECT_TRUE(known.log.waits());
    known.rows = token == 1 ? first : second;
    known.log.Resume(run, token);
    for (const auto& [key, row] : known.rows) known.log.Adopt(row.place);
    known.log.EndResume();
    EXPECT_EQ(known.Wrong(), 0);
    for (int step = 0; step < 300; ++step) known.Step(&random, 1000);
    EXPECT_EQ(known.Wrong(), 0);
  }
}

TEST(RowLog, RefusesToForgetWhatCheckpointsPromise) {
  const std::string folder = NewFolder("waits");
  {
    KnownLog known(SmallLog(folder));
    known.Put(1);
    known.Save(folder + "/saved", 1);
  }
  KnownLog known(SmallLog(folder));
  EXPECT_TRUE(Says(ErrorOf([&] { known.Put(2); }), "restore a checkpoint"));
  EXPECT_TRUE(Says(ErrorOf([&] { known.log.Resume("another", 1); }), "expected run another"));
  EXPECT_TRUE(Says(ErrorOf([&] { known.log.Resume(known.log.run(), 5); }), "does not have the rows"));
  EXPECT_EQ(known.Load(folder + "/saved"), 1);
  EXPECT_EQ(known.Wrong(), 0);
  EXPECT_TRUE(Says(ErrorOf([&] { known.log.Adopt(99 << kLogSlotBits); }), "no row"));
}

TEST(RowLog, RemovesWhatNoCheckpointPromises) {
  const std::string folder = NewFolder("fresh");
  {
    KnownLog(SmallLog(folder)).Put(1);
  }
  std::ofstream(folder + "/" + LogFile::NameOf(77)) << "torn";
  KnownLog known(SmallLog(folder));
  EXPECT_FALSE(fs::exists(folder + "/" + LogFile::NameOf(77)));
  known.Put(2);
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, RefusesASecondUser) {
  const std::string folder = NewFolder("one");
  KnownLog known(SmallLog(folder));
  known.Put(1);
  EXPECT_TRUE(Says(ErrorOf([&] { KnownLog second(SmallLog(folder)); }), folder + ": in use"));
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, RefusesAFileThatWasCopiedFromAnotherRun) {
  const std::string one = NewFolder("copy_to"), two = NewFolder("copy_from");
  for (const std::string& folder : {one, two}) {
    KnownLog known(SmallLog(folder));
    known.Put(1);
    known.Save(folder + "/saved", 1);
  }
  const std::string file = one + "/" + LogFile::NameOf(1);
  fs::copy_file(two + "/" + LogFile::NameOf(1), file, fs::copy_options::overwrite_existing);
  KnownLog known(SmallLog(one));
  EXPECT_TRUE(Says(ErrorOf([&] { known.Load(one + "/saved"); }), file + ": of run "));
}

TEST(RowLog, SaysWhichRecordIsDamaged) {
  const std::string folder = NewFolder("damaged");
  {
    KnownLog known(SmallLog(folder));
    for (uint64_t key = 0; key < 50; ++key) known.Put(key);
    known.Save(folder + "/saved", 1);
  }
  const std::string path = folder + "/" + LogFile::NameOf(1);
  const size_t record = RecordBytes(kLogValues);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(LogFile::kHeaderBytes + 20 * record + 30));
    file.put('\x55');
  }
  KnownLog known(SmallLog(folder));
  known.Load(folder + "/saved");
  EXPECT_TRUE(Says(ErrorOf([&] { known.Wrong(); }), path + ": record 20 is damaged"));
  known.Remove(20);
  EXPECT_EQ(known.Wrong(), 0);
  // A file that lost its end.
  fs::resize_file(path, LogFile::kHeaderBytes + 48 * record + 5);
  EXPECT_TRUE(Says(ErrorOf([&] { known.Wrong(); }), path + ": record 48 is damaged"));
  // Memory that the file is mapped to ends the process if it is read here.
  fs::resize_file(path, LogFile::kHeaderBytes);
  EXPECT_TRUE(Says(ErrorOf([&] { known.Wrong(); }), path + ": record 0 is damaged"));
}

TEST(RowLog, RefusesFilesOfAnotherVersion) {
  const std::string folder = NewFolder("version");
  {
    KnownLog known(SmallLog(folder));
    known.Put(1);
    known.Save(folder + "/saved", 1);
  }
  const std::string path = folder + "/" + LogFile::NameOf(1);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(7).put('1');
  KnownLog known(SmallLog(folder));
  EXPECT_TRUE(
      Says(ErrorOf([&] { known.Load(folder + "/saved"); }), path + ": rows of version 01, expected version 02"));
}

TEST(RowLog, ReadsRowsThatThePageCacheHasLost) {
  const std::string folder = NewFolder("lost");
  KnownLog known(SmallLog(folder));
  for (uint64_t key = 0; key < 3000; ++key) known.Put(key);
  known.log.Pin(1);
  known.log.Promise(1);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != LogFile::kSuffix) continue;
    const int file = open(entry.path().c_str(), O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  EXPECT_EQ(known.Wrong(), 0);
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, MovesRowsThatTheirOwnerStillHas) {
  KnownLog known(SmallLog(NewFolder("moved")));
  for (uint64_t key = 0; key < 3000; ++key) known.Put(key);
  for (uint64_t key = 0; key < 3000; key += 2) known.Remove(key);
  size_t refused = 0;
  while (const size_t owed = known.log.Owed()) {
    known.log.Reclaim(owed, [&](RowLog::Moved* moved, size_t count) {
      for (size_t i = 0; i < count; ++i) {
        // Some rows are elsewhere when they are asked for.
        if (moved[i].key % 5 == 0) {
          known.Put(moved[i].key);
          ++refused;
          continue;
        }
        ASSERT_EQ(known.rows.at(moved[i].key).place, moved[i].from);
        known.rows.at(moved[i].key).place = moved[i].to;
        moved[i].taken = true;
      }
    });
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(known.log.Stats()["moved"], 100);
  EXPECT_EQ(known.log.Stats()["rows"], known.rows.size());
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, KeepsAFileWhoseLiveRecordsAreDamaged) {
  const std::string folder = NewFolder("kept");
  KnownLog known(SmallLog(folder));
  const uint64_t a_file = kLogFileBytes / RecordBytes(kLogValues);
  for (uint64_t key = 0; key < 4 * a_file; ++key) known.Put(key);
  known.log.Pin(1);
  known.log.Promise(1);
  const std::string path = folder + "/" + LogFile::NameOf(1);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(LogFile::kHeaderBytes + 30).put('\x55');
  for (uint64_t key = 1; key < 3 * a_file; ++key) known.Remove(key);
  while (const size_t owed = known.log.Owed()) {
    if (known.Reclaim(owed) == 0) break;
  }
  EXPECT_TRUE(fs::exists(path));
  EXPECT_TRUE(Says(ErrorOf([&] { known.Wrong(); }), path + ": record 0 is damaged"));
  known.Remove(0);
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, RefusesRowsBeyondItsLimit) {
  LogSettings settings = SmallLog(NewFolder("limit"));
  settings.limit_bytes = 160 << 10;
  KnownLog known(settings);
  const auto fill = [&] {
    for (uint64_t key = 0; key < 10000; ++key) known.Put(key);
  };
  const SsdError error = ErrorOf(fill);
  EXPECT_EQ(error.kind(), SsdError::Kind::kFull);
  EXPECT_TRUE(Says(error, "raise ssd_limit"));
  EXPECT_EQ(known.Wrong(), 0);
  const size_t rows = known.rows.size();
  for (uint64_t key = 0; key < rows / 2; ++key) known.Remove(key);
  for (uint64_t key = 0; key < rows / 4; ++key) known.Put(key);
  EXPECT_EQ(known.Wrong(), 0);
}

TEST(RowLog, GoesOnAfterADeviceThatFails) {
  const std::string folder = NewFolder("device");
  KnownLog known(SmallLog(folder));
  for (uint64_t key = 0; key < 10; ++key) known.Put(key);
  const std::string path = folder + "/" + LogFile::NameOf(1);
  const int good = open(path.c_str(), O_RDWR);
  // Where no memory is mapped, this file reads and writes with EIO.
  Replace(path, "/proc/self/mem");
  known.log.Pin(1);
  const SsdError error = ErrorOf([&] { known.log.Promise(1); });
  EXPECT_EQ(error.kind(), SsdError::Kind::kDevice);
  EXPECT_TRUE(Says(error, path + ": write: Input/output error")) << error.what();
  EXPECT_TRUE(Says(ErrorOf([&] { known.Put(11); }), "Input/output error"));
  EXPECT_EQ(known.Wrong(), 0);
  close(good);
}

}  // namespace
}  // namespace elastic_training
