// SPDX-License-Identifier: Apache-2.0
// How many random reads a second a device answers, with the code that reads tiered tables.
//
//     bench_reads --file FILE [--bytes 4096] [--depth 64] [--threads 2] [--seconds 5]
//
// Each thread reads `--depth` pieces of `--bytes` at random places at a time. JSON on standard output.

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "program.h"
#include "src/base/huge_memory.h"
#include "src/tables/direct_file.h"
#include "src/tables/read_batch.h"
#include "src/tables/table_file.h"

namespace processor::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Reads until `until`. Returns the number of reads.
size_t ReadOn(const DirectFile& file, uint64_t pieces_in_file, size_t bytes, size_t depth, unsigned seed,
              Clock::time_point until) {
  const std::unique_ptr<ReadBatch> batch = ReadBatch::Make();
  const HugeMemory memory(depth * bytes < (size_t{1} << 20) ? size_t{1} << 20 : depth * bytes);
  std::mt19937_64 random(seed);
  std::vector<ReadPiece> pieces(depth);
  size_t reads = 0;
  while (Clock::now() < until) {
    for (size_t i = 0; i < depth; ++i) {
      pieces[i] = {file.descriptor(), random() % pieces_in_file * bytes, static_cast<uint32_t>(bytes),
                   memory.data() + i * bytes};
    }
    batch->Read(absl::MakeSpan(pieces));
    for (const ReadPiece& piece : pieces) {
      if (piece.got != bytes) throw std::runtime_error("a read failed or was too short");
    }
    reads += depth;
  }
  return reads;
}

Report Measure(const Arguments& arguments) {
  const size_t bytes = arguments.Count("--bytes"), depth = arguments.Count("--depth");
  TableFile file(arguments.Text("--file"));
  std::unique_ptr<const DirectFile> direct;
  absl::Status status = file.Open();
  if (status.ok()) status = DirectFile::Open(file, &direct);
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  if (bytes % direct->alignment() != 0) throw std::invalid_argument("--bytes: expected a multiple of the alignment");
  const uint64_t pieces = file.identity().size / bytes;
  if (pieces == 0) throw std::invalid_argument("--file: smaller than a read");
  const Clock::time_point begun = Clock::now();
  const auto until = begun + std::chrono::milliseconds(static_cast<int64_t>(arguments.Number("--seconds") * 1000));
  std::atomic<size_t> reads{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < arguments.Count("--threads"); ++t) {
    threads.emplace_back([&, t] { reads += ReadOn(*direct, pieces, bytes, depth, t, until); });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  return {{"reads_per_s", Rounded(static_cast<double>(reads) / seconds, 0)},
          {"bytes", bytes},
          {"depth", depth},
          {"threads", threads.size()},
          {"direct", direct->is_direct()},
          {"alignment", direct->alignment()}};
}

}  // namespace

const Program kProgram = {
    {{"--file", ""}, {"--bytes", "4096"}, {"--depth", "64"}, {"--threads", "2"}, {"--seconds", "5"}}, Measure};

}  // namespace processor::bench
