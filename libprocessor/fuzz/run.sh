#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the codecs and the readers of tables, of deltas, of desired.json and of plans, each for a bounded time: run.sh BUILD_DIR [SECONDS]
#
# BUILD_DIR/fuzz holds the programs of libprocessor/fuzz/CMakeLists.txt. With clang the search is guided by coverage
# (libFuzzer); without it random inputs and damaged ones are tried, which finds less. The corpora grow in
# BUILD_DIR/fuzz/corpus-* and are used again. An input that fails is left in BUILD_DIR/fuzz as crash-*.
set -eu
folder=$1/fuzz
seconds=${2:-60}

# TensorFlow is built without sanitizers: memory may change hands between its allocator and ours, its containers carry no
# marks, and both libraries of it define the same variables.
export ASAN_OPTIONS=alloc_dealloc_mismatch=0:detect_container_overflow=0:detect_odr_violation=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TF_CPP_MIN_LOG_LEVEL=3

for name in codec table delta desired plan; do
  program=$folder/fuzz_$name
  if [ -x "$program" ]; then
    mkdir -p "$folder/seeds-$name" "$folder/corpus-$name"
    "${program}_driver" --write-seeds "$folder/seeds-$name"
    # The codecs may ask for 64 MiB to repeat a value; a limit well above that finds those that ask for more.
    "$program" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -malloc_limit_mb=512 \
      -timeout=10 -print_final_stats=1 -verbosity=0 -artifact_prefix="$folder/" "$folder/corpus-$name" \
      "$folder/seeds-$name"
  else
    echo "run.sh: no clang, so no coverage to guide the search; install clang for libFuzzer" >&2
    "${program}_driver" --seconds "$seconds" "$(date +%s)"
  fi
done
