#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fuzzes the codecs for a bounded time: run.sh BUILD_DIR [SECONDS]
#
# BUILD_DIR/fuzz holds the programs of libprocessor/fuzz/CMakeLists.txt. With clang the search is guided by coverage
# (libFuzzer); without it random requests and damaged ones are tried, which finds less. The corpus grows in
# BUILD_DIR/fuzz/corpus and is used again. An input that fails is left in BUILD_DIR/fuzz as crash-*.
set -eu
folder=$1/fuzz
seconds=${2:-60}

# TensorFlow is built without sanitizers: memory may change hands between its allocator and ours, its containers carry no
# marks, and both libraries of it define the same variables.
export ASAN_OPTIONS=alloc_dealloc_mismatch=0:detect_container_overflow=0:detect_odr_violation=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TF_CPP_MIN_LOG_LEVEL=3

mkdir -p "$folder/seeds" "$folder/corpus"
"$folder/fuzz_codec_driver" --write-seeds "$folder/seeds"
if [ -x "$folder/fuzz_codec" ]; then
  # The codecs may ask for 64 MiB to repeat a value; a limit well above that finds those that ask for more.
  exec "$folder/fuzz_codec" -max_total_time="$seconds" -max_len=4096 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -timeout=10 -print_final_stats=1 -verbosity=0 -artifact_prefix="$folder/" "$folder/corpus" "$folder/seeds"
fi
echo "run.sh: no clang, so no coverage to guide the search; install clang for libFuzzer" >&2
exec "$folder/fuzz_codec_driver" --seconds "$seconds" "$(date +%s)"
