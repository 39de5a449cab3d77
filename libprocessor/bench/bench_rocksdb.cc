// SPDX-License-Identifier: Apache-2.0
// The table of a tiered model served from RocksDB: sums of the rows of requests' ids, with a limited memory.
//
//     bench_rocksdb --table FILE --folder DB --rows N --memory BYTES [--cache rows|blocks] [--threads 8] [--parts 4]
//
// Copies the rows of a table with int64 keys `7919 * row + 13` to a database if the folder is missing, and prints what it has
// in memory beside its cache. Then it answers each file of requests (int64 [n, batch, ids], its name is a line of standard
// input) from `--threads` threads, each of which sends one request at a time, and prints a line of JSON with the requests per
// second and the latencies [ms]. If there are fewer than ten, it writes FILE.sums (float32 [n, batch, dim]).
//
// Tuned for this table: all keys exist, so there are no filters; blocks are those of the device; reads are direct; indexes are
// in memory; MultiGet gets each key of a request once, sorted, in `--parts` threads, so that more reads are on the way. Of the two caches, that of rows wastes less memory on their
// neighbors. Checksums are not verified, since those of a tiered table are verified only once.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "program.h"

namespace processor::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = 256, kIds = 32, kDim = 64, kRowBytes = 4 * kDim;
constexpr size_t kRequestIds = kBatch * kIds;
// Of the memory, for blocks beside a cache of rows.
constexpr size_t kBlocksShare = 64;
// Sums are written for files with fewer requests.
constexpr size_t kMostWritten = 10;
constexpr size_t kRowsOfFile = 1000000;

void Check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error("RocksDB: " + status.ToString());
}

uint64_t BigEndian(int64_t key) { return __builtin_bswap64(static_cast<uint64_t>(key)); }

rocksdb::Slice SliceOf(const uint64_t& big_endian) {
  return {reinterpret_cast<const char*>(&big_endian), sizeof(big_endian)};
}

rocksdb::Options OptionsOf(const Arguments& arguments, size_t memory) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.use_direct_reads = true;
  options.max_open_files = -1;
  rocksdb::BlockBasedTableOptions table;
  table.block_size = 4096;
  table.block_align = true;
  table.data_block_index_type = rocksdb::BlockBasedTableOptions::kDataBlockBinaryAndHash;
  const bool rows = arguments.Text("--cache") == "rows";
  table.block_cache = rocksdb::NewLRUCache(rows ? memory / kBlocksShare : memory, 6);
  if (rows) options.row_cache = rocksdb::NewLRUCache(memory - memory / kBlocksShare, 6);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// Copies the rows of a table, which are one after the other, in the order of their keys.
void MakeDatabase(const Arguments& arguments, const rocksdb::Options& options) {
  const std::string folder = arguments.Text("--folder");
  std::filesystem::create_directories(folder);
  std::ifstream table(arguments.Text("--table"), std::ios::binary);
  table.seekg(static_cast<std::streamoff>(arguments.Count("--offset")));
  const size_t rows = arguments.Count("--rows");
  std::vector<std::string> files;
  std::string row(kRowBytes, '\0');
  for (size_t begin = 0; begin < rows; begin += kRowsOfFile) {
    rocksdb::SstFileWriter writer(rocksdb::EnvOptions(), options);
    files.push_back(folder + "/" + std::to_string(begin) + ".new");
    Check(writer.Open(files.back()));
    for (size_t number = begin; number < std::min(begin + kRowsOfFile, rows); ++number) {
      if (!table.read(row.data(), kRowBytes)) throw std::runtime_error("--table: too short");
      const uint64_t key = BigEndian(static_cast<int64_t>(number) * 7919 + 13);
      Check(writer.Put(SliceOf(key), row));
    }
    Check(writer.Finish());
  }
  rocksdb::DB* database = nullptr;
  Check(rocksdb::DB::Open(options, folder, &database));
  const std::unique_ptr<rocksdb::DB> owned(database);
  rocksdb::IngestExternalFileOptions ingest;
  ingest.move_files = true;
  Check(database->IngestExternalFile(files, ingest));
}

// What a thread needs for a request.
class Request {
 public:
  Request(rocksdb::DB* database, size_t parts)
      : database_(database), parts_(parts), values_(kRequestIds), statuses_(kRequestIds) {}

  void Answer(const int64_t* ids, float* sums) {
    order_.clear();
    for (size_t i = 0; i < kRequestIds; ++i) order_.emplace_back(ids[i], static_cast<uint32_t>(i));
    std::sort(order_.begin(), order_.end());
    keys_.clear();
    place_.resize(kRequestIds);
    for (size_t i = 0; i < kRequestIds; ++i) {
      if (i == 0 || order_[i].first != order_[i - 1].first) keys_.push_back(BigEndian(order_[i].first));
      place_[order_[i].second] = static_cast<uint32_t>(keys_.size() - 1);
    }
    slices_.clear();
    for (const uint64_t& key : keys_) slices_.push_back(SliceOf(key));
    GetRows();
    for (size_t i = 0; i < slices_.size(); ++i) Check(statuses_[i]);
    std::fill_n(sums, kBatch * kDim, 0.0f);
    for (size_t i = 0; i < kRequestIds; ++i) {
      const char* const bytes = values_[place_[i]].data();
      float* const sum = sums + i / kIds * kDim;
      for (size_t d = 0; d < kDim; ++d) {
        float value;
        std::memcpy(&value, bytes + 4 * d, sizeof(value));
        sum[d] += value;
      }
    }
    for (size_t i = 0; i < slices_.size(); ++i) values_[i].Reset();
  }

 private:
  // The keys in parts, each of which a thread gets.
  void GetRows() {
    rocksdb::ReadOptions options;
    options.verify_checksums = false;
    const auto get = [&](size_t part) {
      const size_t begin = part * slices_.size() / parts_, end = (part + 1) * slices_.size() / parts_;
      database_->MultiGet(options, database_->DefaultColumnFamily(), end - begin, &slices_[begin], &values_[begin],
                          &statuses_[begin], /*sorted_input=*/true);
    };
    std::vector<std::thread> threads;
    for (size_t part = 1; part < parts_; ++part) threads.emplace_back(get, part);
    get(0);
    for (std::thread& thread : threads) thread.join();
  }

  rocksdb::DB* const database_;
  const size_t parts_;
  std::vector<std::pair<int64_t, uint32_t>> order_;
  std::vector<uint64_t> keys_;
  std::vector<uint32_t> place_;
  std::vector<rocksdb::Slice> slices_;
  std::vector<rocksdb::PinnableSlice> values_;
  std::vector<rocksdb::Status> statuses_;
};

Report AnswerFile(rocksdb::DB* database, const std::string& path, size_t num_threads, size_t parts) {
  const size_t count = std::filesystem::file_size(path) / (8 * kRequestIds);
  std::vector<int64_t> ids(count * kRequestIds);
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(ids.data()), count * kRequestIds * 8);
  std::vector<float> sums(count * kBatch * kDim);
  std::vector<double> latencies(count);
  std::vector<std::string> errors(num_threads);
  std::vector<std::thread> threads;
  const Clock::time_point begun = Clock::now();
  for (size_t t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      try {
        Request request(database, parts);
        for (size_t r = t; r < count; r += num_threads) {
          const Clock::time_point sent = Clock::now();
          request.Answer(&ids[r * kRequestIds], &sums[r * kBatch * kDim]);
          latencies[r] = std::chrono::duration<double, std::milli>(Clock::now() - sent).count();
        }
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
  if (count < kMostWritten) {
    std::ofstream(path + ".sums", std::ios::binary).write(reinterpret_cast<const char*>(sums.data()), sums.size() * 4);
  }
  return {{"requests_per_s", static_cast<double>(count) / seconds}, {"latencies_ms", latencies}};
}

Report Serve(const Arguments& arguments) {
  const size_t memory = arguments.Count("--memory");
  const std::string folder = arguments.Text("--folder");
  if (!std::filesystem::exists(folder)) MakeDatabase(arguments, OptionsOf(arguments, memory));
  size_t readers = 0;
  std::unique_ptr<rocksdb::DB> database;
  // The second time with the memory that the indexes leave.
  for (int time = 0; time < 2; ++time) {
    database.reset();
    rocksdb::DB* opened = nullptr;
    Check(rocksdb::DB::OpenForReadOnly(OptionsOf(arguments, memory - readers), folder, &opened));
    database.reset(opened);
    std::string text;
    if (!database->GetProperty("rocksdb.estimate-table-readers-mem", &text)) throw std::runtime_error("no property");
    readers = std::stoul(text);
    if (readers >= memory) throw std::invalid_argument("--memory: the indexes take " + text + " bytes");
  }
  std::printf("%s\n", Report{{"index_bytes", readers}, {"cache_bytes", memory - readers}}.dump().c_str());
  std::fflush(stdout);
  for (std::string path; std::getline(std::cin, path);) {
    std::printf(
        "%s\n",
        AnswerFile(database.get(), path, arguments.Count("--threads"), arguments.Count("--parts")).dump().c_str());
    std::fflush(stdout);
  }
  return nullptr;
}

}  // namespace

const Program kProgram = {{{"--table", ""},
                           {"--offset", "4096"},
                           {"--folder", ""},
                           {"--rows", ""},
                           {"--memory", ""},
                           {"--cache", "rows"},
                           {"--threads", "8"},
                           {"--parts", "4"}},
                          Serve};

}  // namespace processor::bench
