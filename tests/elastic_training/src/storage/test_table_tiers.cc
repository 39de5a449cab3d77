// SPDX-License-Identifier: Apache-2.0
// A table with a tier on SSD beside one that has all its rows in memory: nothing may tell them apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../cut/cut_fixture.h"
#include "src/eviction/tier_sweep.h"
#include "table_fixture.h"

namespace elastic_training {
namespace {

constexpr size_t kSmallMemory = 1 << 20;

std::string FolderOf(const std::string& name) {
  std::filesystem::remove_all("tiers_" + name);
  return "tiers_" + name;
}

std::unique_ptr<ElasticTable> TieredTable(const std::string& name, const std::string& folder,
                                          size_t memory = kSmallMemory, const std::string& keys = "int64") {
  const nlohmann::json tiers = {{"memory", memory}, {"ssd", folder}};
  return CountingTable(name, nlohmann::json({{"tiers", tiers}, {"key", keys}}).dump());
}

// What TrainAt uses of a batch.
std::vector<uint64_t> RandomKeys(std::mt19937_64* random, uint64_t keys, size_t count) {
  std::vector<uint64_t> batch(count);
  for (uint64_t& key : batch) key = (*random)() % keys + 1;
  return batch;
}

// As Train, with the sweep that follows an update.
void TrainAt(ElasticTable* table, TierSweep* tiers, const std::vector<uint64_t>& keys, uint32_t now) {
  EXPECT_EQ(Train(table, keys, now), -1);
  if (tiers != nullptr) tiers->AfterUpdate();
}

struct Contents {
  std::vector<float> weights, slots;
  std::vector<int64_t> touches, counts, kinds;

  bool operator==(const Contents& other) const {
    return weights == other.weights && slots == other.slots && touches == other.touches && counts == other.counts &&
           kinds == other.kinds;
  }
};

Contents ContentsOf(const ElasticTable& table, const std::vector<uint64_t>& keys) {
  const size_t n = keys.size();
  Contents all{std::vector<float>(n * kDim), std::vector<float>(n * table.layout().slots), std::vector<int64_t>(n),
               std::vector<int64_t>(n), std::vector<int64_t>(n)};
  RowContents contents;
  contents.weights = all.weights.data();
  contents.slots = all.slots.data();
  contents.touches = all.touches.data();
  contents.counts = all.counts.data();
  contents.kinds = all.kinds.data();
  table.Read({keys.data(), nullptr, n}, contents);
  return all;
}

std::vector<float> Lookup(ElasticTable* table, const std::vector<uint64_t>& keys) {
  std::vector<float> rows(keys.size() * kDim);
  LookupRequest lookup;
  lookup.keys = {keys.data(), nullptr, keys.size()};
  lookup.rows = rows.data();
  table->Lookup(lookup);
  return rows;
}

TEST(TableTiers, EqualATableInMemory) {
  const uint64_t keys = 25000;
  const auto tiered = TieredTable("tiered", FolderOf("equal")), plain = CountingTable("tiered");
  TierSweep tiers(tiered.get());
  std::mt19937_64 random(1);
  for (uint32_t step = 0; step < 300; ++step) {
    const std::vector<uint64_t> batch = RandomKeys(&random, keys, 700);
    TrainAt(tiered.get(), &tiers, batch, step);
    TrainAt(plain.get(), nullptr, batch, step);
    if (step % 50 == 0) {
      const std::vector<uint64_t> some = RandomKeys(&random, keys, 500);
      EXPECT_EQ(Lookup(tiered.get(), some), Lookup(plain.get(), some));
      Evict(tiered.get(), Keys(step * 40, 30));
      Evict(plain.get(), Keys(step * 40, 30));
    }
  }
  const RowCounts counts = tiered->counts();
  EXPECT_GT(counts.ssd, 1000);
  EXPECT_GT(counts.full, 1000);
  EXPECT_EQ(counts.ssd + counts.full, plain->counts().full);
  EXPECT_LE(tiered->bytes() - tiered->free_bytes(counts), kSmallMemory);
  const std::vector<uint64_t> all = Keys(0, keys + 2);
  EXPECT_TRUE(ContentsOf(*tiered, all) == ContentsOf(*plain, all));
  EXPECT_GT(tiers.Stats()["log"]["reclaimed_files"], 0);
  // The rows in memory are those that were touched last.
  std::set<uint64_t> in_memory;
  uint64_t cursor = 0;
  do {
    cursor = tiered->VisitHeaders(cursor, [&](const RowView& row) {
      if (row.weights != nullptr) in_memory.insert(row.key);
    });
  } while (cursor != 0);
  EXPECT_EQ(in_memory.size(), counts.full);
  const Contents contents = ContentsOf(*tiered, all);
  int64_t coldest_in_memory = INT64_MAX, hottest_on_ssd = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (contents.kinds[i] == 0) continue;
    if (in_memory.count(all[i]) != 0) coldest_in_memory = std::min(coldest_in_memory, contents.touches[i]);
    if (in_memory.count(all[i]) == 0) hottest_on_ssd = std::max(hottest_on_ssd, contents.touches[i]);
  }
  EXPECT_GE(coldest_in_memory + 60, hottest_on_ssd);
}

TEST(TableTiers, StringKeysKeepTheirRows) {
  const auto table = TieredTable("strings", FolderOf("strings"), kSmallMemory, "string");
  std::vector<std::string> texts;
  for (int i = 0; i < 17000; ++i) texts.push_back("user " + std::to_string(i));
  TierSweep tiers(table.get());
  std::vector<std::string_view> views(texts.begin(), texts.end());
  std::vector<uint64_t> fingerprints(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) fingerprints[i] = i / 2;  // each of two strings: the bytes decide
  std::vector<float> weights(texts.size() * kDim);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  RowContents contents;
  for (size_t begin = 0; begin < texts.size(); begin += 1000) {
    contents.weights = &weights[begin * kDim];
    table->Insert({&fingerprints[begin], &views[begin], 1000}, contents);
    tiers.AfterUpdate();
  }
  EXPECT_GT(table->counts().ssd, 1000);
  std::vector<float> read(weights.size());
  contents.weights = read.data();
  table->Read({fingerprints.data(), views.data(), texts.size()}, contents);
  EXPECT_EQ(read, weights);
}

TEST(TableTiers, CutsHaveTheRowsOfBothTiers) {
  const auto table = TieredTable("cut", FolderOf("cut"));
  TierSweep tiers(table.get());
  std::mt19937_64 random(2);
  uint32_t now = 0;
  for (; now < 150; ++now) TrainAt(table.get(), &tiers, RandomKeys(&random, 30000, 700), now);
  ASSERT_GT(table->counts().ssd, 1000);
  const std::vector<uint64_t> all = Keys(1, 30000);
  const Contents then = ContentsOf(*table, all);
  Writers writers;
  ModelCut cut({table.get()}, CutSettings{}, &writers);
  std::map<uint64_t, std::vector<float>> found;
  const auto take = [&](const RowBlock& block) {
    const size_t columns = table->layout().dim + table->layout().slots;
    size_t full = 0;
    for (size_t i = 0; i < block.keys.size(); ++i) {
      if (block.meta[3 * i + 2] != static_cast<uint32_t>(RowKind::kFull)) continue;
      EXPECT_TRUE(found
                      .emplace(block.keys[i], std::vector<float>(&block.values[full * columns],
                                                                 &block.values[full * columns] + columns))
                      .second);
      ++full;
    }
  };
  for (;;) {
    TrainAt(table.get(), &tiers, RandomKeys(&random, 30000, 700), now++);
    const RowBlock block = cut.at(0).Read(200 << 10);
    if (block.empty()) break;
    take(block);
  }
  cut.End(true);
  size_t rows = 0, wrong = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (then.kinds[i] == 0) continue;
    ++rows;
    const auto one = found.find(all[i]);
    wrong += one == found.end() ||
             !std::equal(&then.weights[i * kDim], &then.weights[(i + 1) * kDim], &one->second[0]) ||
             !std::equal(&then.slots[i * kDim], &then.slots[(i + 1) * kDim], &one->second[kDim]);
  }
  EXPECT_EQ(found.size(), rows);
  EXPECT_EQ(wrong, 0);
}

TEST(TableTiers, ThreadsTrainAndReadBothTiers) {
  const uint64_t keys = 20000;
  const auto table = TieredTable("threads", FolderOf("table_threads"));
  TierSweep tiers(table.get());
  std::atomic<size_t> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (uint32_t step = 0; step < 120; ++step) TrainAt(table.get(), &tiers, RandomKeys(&random, keys, 400), step);
    });
  }
  threads.emplace_back([&] {
    std::mt19937_64 random(9);
    for (int step = 0; step < 200; ++step) {
      const std::vector<uint64_t> batch = RandomKeys(&random, keys, 300);
      table->Prefetch({batch.data(), nullptr, batch.size()});
      const std::vector<float> rows = Lookup(table.get(), batch);
      // All weights of a row are updated by equal gradients, so they are equal.
      for (size_t i = 0; i < batch.size(); ++i) torn += rows[i * kDim] != rows[i * kDim + kDim - 1];
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_GT(table->counts().ssd, 100);
  // Each occurrence was counted, in whichever tier the row was.
  int64_t occurrences = 0;
  for (const int64_t count : ContentsOf(*table, Keys(1, keys)).counts) occurrences += count;
  EXPECT_EQ(occurrences, 2 * 120 * 400);
}

// The key of a hash.
uint64_t KeyOfHash(uint64_t hash) {
  hash = (hash ^ hash >> 31 ^ hash >> 62) * 0x319642b2d24d8ec3;
  hash = (hash ^ hash >> 27 ^ hash >> 54) * 0x96de1b173f119089;
  return (hash ^ hash >> 30 ^ hash >> 60) - kGoldenStep;
}

// One of the keys that the index of rows on SSD does not tell apart.
uint64_t EqualKey(uint64_t number, uint64_t which) { return KeyOfHash((Mix(number) >> 24 << 24) + which); }

// Moves the rows of some keys to SSD.
void MoveToSsd(ElasticTable* table, const std::set<uint64_t>& keys) {
  uint64_t cursor = 0;
  do {
    cursor = table->Sweep(cursor, [&](const RowView& row) {
      return row.weights != nullptr && keys.count(row.key) != 0 ? RowFate::kMoveToSsd : RowFate::kKeep;
    });
  } while (cursor != 0);
}

TEST(TableTiers, KeysWithEqualBitsKeepTheirRows) {
  ASSERT_EQ(HashKey(KeyOfHash(12345)), 12345);
  const auto tiered = TieredTable("bits", FolderOf("bits")), plain = CountingTable("bits");
  TierSweep tiers(tiered.get());
  std::mt19937_64 random(4);
  const auto draw = [&](size_t count, uint64_t most) {
    std::vector<uint64_t> keys(count);
    for (uint64_t& key : keys) key = EqualKey(random() % 9000, random() % most);
    return keys;
  };
  for (uint32_t step = 0; step < 200; ++step) {
    const std::vector<uint64_t> batch = draw(700, 3);
    TrainAt(tiered.get(), &tiers, batch, step);
    TrainAt(plain.get(), nullptr, batch, step);
    if (step % 20 != 0) continue;
    // One of four is never trained.
    const std::vector<uint64_t> some = draw(500, 4), evicted = draw(100, 4);
    EXPECT_EQ(Lookup(tiered.get(), some), Lookup(plain.get(), some));
    Evict(tiered.get(), evicted);
    Evict(plain.get(), evicted);
  }
  EXPECT_GT(tiered->counts().ssd, 1000);
  std::vector<uint64_t> all;
  for (uint64_t number = 0; number < 9000; ++number) {
    for (uint64_t which = 0; which < 4; ++which) all.push_back(EqualKey(number, which));
  }
  EXPECT_TRUE(ContentsOf(*tiered, all) == ContentsOf(*plain, all));
}

TEST(TableTiers, AdoptsARowBesideAnotherWithEqualBits) {
  const auto table = TieredTable("adopts", FolderOf("adopts"));
  const std::vector<uint64_t> keys = {EqualKey(1, 0), EqualKey(1, 1)};
  std::vector<float> weights = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_EQ(weights.size(), 2 * kDim);
  RowContents contents;
  contents.weights = weights.data();
  table->Insert({keys.data(), nullptr, 2}, contents);
  MoveToSsd(table.get(), {keys[1]});
  RowBlock block;
  {
    Writers writers;
    CutSettings settings;
    settings.leaves_ssd = true;
    settings.token = 7;
    ModelCut cut({table.get()}, settings, &writers);
    block = cut.at(0).Read(1 << 20);
    cut.End(true);
  }
  ASSERT_EQ(block.keys.size(), 2);
  const size_t on_ssd = block.meta[2] >= kOnSsdKind ? 0 : 1;
  const LogPlace place = block.meta[3 * on_ssd + 2] & ~kOnSsdKind;
  Evict(table.get(), {keys[1]});
  MoveToSsd(table.get(), {keys[0]});
  ASSERT_EQ(table->counts().ssd, 1);
  // The cut names it by the bits that the index has.
  EXPECT_NE(block.keys[on_ssd], keys[1]);
  for (int time = 0; time < 2; ++time) table->Adopt({&block.keys[on_ssd], nullptr, 1}, &place);
  EXPECT_EQ(table->counts().ssd, 1);
  EXPECT_EQ(table->counts().full, 1);
  EXPECT_EQ(ContentsOf(*table, keys).weights, weights);
  const uint64_t wrong = EqualKey(2, 0);
  EXPECT_NE(MessageOf([&] { table->Adopt({&wrong, nullptr, 1}, &place); }).find("no row of the expected key"),
            std::string::npos);
}

TEST(TableTiers, SweepsTellTheKeysThatTheyEvictFromSsd) {
  const auto table = TieredTable("sweeps", FolderOf("sweeps"));
  const std::vector<uint64_t> keys = Keys(1, 3000);
  table->Follow();
  table->Insert({keys.data(), nullptr, keys.size()}, RowContents());
  MoveToSsd(table.get(), {keys.begin(), keys.begin() + 2000});
  ASSERT_EQ(table->counts().ssd, 2000);
  uint64_t cursor = 0;
  do cursor = table->Sweep(cursor, [](const RowView&) { return RowFate::kEvict; });
  while (cursor != 0);
  EXPECT_EQ(table->counts().ssd, 0);
  EXPECT_EQ(table->log()->live(), 0);
  const Changes changes = ChangesOf(table.get());
  EXPECT_EQ(changes.evicted, std::set<uint64_t>(keys.begin(), keys.end()));
}

TEST(TableTiers, ASweepEvictsFromSsdAndMovesOtherRowsThere) {
  const auto table = TieredTable("both", FolderOf("both"));
  const std::vector<uint64_t> keys = Keys(1, 6000);
  std::vector<float> weights(keys.size() * kDim);
  std::iota(weights.begin(), weights.end(), 1.0f);
  RowContents contents;
  contents.weights = weights.data();
  table->Follow();
  table->Insert({keys.data(), nullptr, keys.size()}, contents);
  const std::set<uint64_t> evicted(keys.begin(), keys.begin() + 500);
  MoveToSsd(table.get(), evicted);
  ASSERT_EQ(table->counts().ssd, 500);
  // So many that the index of rows on SSD grows, and its rows get other numbers.
  uint64_t cursor = 0;
  do {
    cursor = table->Sweep(
        cursor, [](const RowView& row) { return row.weights == nullptr ? RowFate::kEvict : RowFate::kMoveToSsd; });
  } while (cursor != 0);
  EXPECT_EQ(table->counts().ssd, 5500);
  EXPECT_EQ(table->counts().full, 0);
  const std::vector<uint64_t> kept(keys.begin() + 500, keys.end());
  EXPECT_EQ(ContentsOf(*table, kept).weights, std::vector<float>(weights.begin() + 500 * kDim, weights.end()));
  const Contents gone = ContentsOf(*table, {evicted.begin(), evicted.end()});
  EXPECT_EQ(std::count(gone.kinds.begin(), gone.kinds.end(), static_cast<int64_t>(RowKind::kAbsent)), 500);
  EXPECT_EQ(ChangesOf(table.get()).evicted, evicted);
}

TEST(TableTiers, SweepsEvictRowsWhoseRecordsAreDamaged) {
  const std::string folder = FolderOf("damaged");
  const auto table = TieredTable("damaged", folder);
  const std::vector<uint64_t> keys = Keys(1, 3000);
  table->Follow();
  table->Insert({keys.data(), nullptr, keys.size()}, RowContents());
  MoveToSsd(table.get(), {keys.begin(), keys.begin() + 2000});
  // A thread writes the records.
  std::fstream file(folder + "/" + LogFile::NameOf(1), std::ios::in | std::ios::out | std::ios::binary);
  char first[32] = {};
  while (std::all_of(std::begin(first), std::end(first), [](char byte) { return byte == 0; })) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    file.seekg(LogFile::kHeaderBytes);
    ASSERT_TRUE(file.read(first, sizeof(first)));
  }
  file.seekp(LogFile::kHeaderBytes + 30);
  file.put(static_cast<char>(~first[30]));
  file.close();
  uint64_t cursor = 0;
  do cursor = table->Sweep(cursor, [](const RowView&) { return RowFate::kEvict; });
  while (cursor != 0);
  EXPECT_EQ(table->counts().ssd, 0);
  EXPECT_NE(MessageOf([&] { ChangesOf(table.get()); }).find("are not known"), std::string::npos)
      << "whoever follows the table has to read all of it";
}

TEST(TableTiers, SayWhatDoesNotFit) {
  const auto table = TieredTable("small", FolderOf("small"));
  TierSweep tiers(table.get());
  std::mt19937_64 random(3);
  const auto grow = [&] {
    for (uint32_t step = 0; step < 400; ++step)
      TrainAt(table.get(), &tiers, RandomKeys(&random, uint64_t{1} << 40, 500), step);
  };
  EXPECT_NE(MessageOf(grow).find("keys and index of"), std::string::npos);

  const nlohmann::json limited = {{"memory", kSmallMemory}, {"ssd", FolderOf("limited")}, {"ssd_limit", 9 << 20}};
  const auto full = CountingTable("full", nlohmann::json({{"tiers", limited}, {"dim", 128}}).dump());
  TierSweep full_tiers(full.get());
  std::vector<uint64_t> keys(100);
  const auto fill = [&] {
    for (uint64_t key = 0; key < 20000; key += 100) {
      full->Insert({Keys(key, 100).data(), nullptr, 100}, RowContents());
      full_tiers.AfterUpdate();
    }
  };
  EXPECT_NE(MessageOf(fill).find("raise ssd_limit"), std::string::npos);
  EXPECT_NE(MessageOf([] { CountingTable("wrong", R"({"tiers": {"memory": 5, "ssd": "x"}})"); }).find("memory"),
            std::string::npos);
}

}  // namespace
}  // namespace elastic_training
