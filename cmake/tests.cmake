# SPDX-License-Identifier: Apache-2.0
# Programs of tests/libprocessor. They contain the library's objects instead of linking the library, so that tests can use
# what it does not export, and the runtime of a sanitizer comes first without preloading.
include(cmake/messages.cmake)
include(cmake/programs.cmake)
find_package(GTest REQUIRED)

# They are built on request, not with the library.
function(add_test_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  link_program(${name} tests processor_objects processor_kernels)
endfunction()

# add_unit_tests(NAME SOURCES...): a program of unit tests. The library's objects are optimized as they are shipped. The
# tests themselves are not, so that they compile in half the time.
function(add_unit_tests name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  link_program(${name} tests GTest::gtest_main)
  target_include_directories(${name} PRIVATE tests/libprocessor)
  target_compile_options(${name} PRIVATE -O1)
endfunction()

file(GLOB PROCESSOR_TEST_SOURCES CONFIGURE_DEPENDS tests/libprocessor/base/test_*.cc
                                                   tests/libprocessor/runtime/*/test_*.cc
                                                   tests/libprocessor/codec/test_*.cc
                                                   tests/libprocessor/host/*/test_*.cc
                                                   tests/libprocessor/c_api/test_*.cc)
add_unit_tests(processor_tests ${PROCESSOR_TEST_SOURCES} tests/libprocessor/codec/oracle.cc
               tests/libprocessor/codec/kserve_oracle.cc tests/libprocessor/codec/differential.cc
               tests/libprocessor/runtime/failing_allocations.cc)
target_link_libraries(processor_tests PRIVATE processor_objects processor_kernels processor_messages)
target_include_directories(processor_tests PRIVATE tests/libprocessor/codec tests/libprocessor/host
                                                   tests/libprocessor/runtime)
target_precompile_headers(processor_tests PRIVATE <string> <vector> <gtest/gtest.h> <nlohmann/json.hpp>
                          <tensorflow/core/framework/op_kernel.h> <tensorflow/core/framework/tensor.h>)
compile_in_batches(processor_tests 16)

# Kernels and tables, without the runtime.
file(GLOB PROCESSOR_KERNEL_TEST_SOURCES CONFIGURE_DEPENDS tests/libprocessor/kernels/test_*.cc
                                                          tests/libprocessor/live/test_*.cc
                                                          tests/libprocessor/tables/test_*.cc)
add_unit_tests(processor_kernel_tests ${PROCESSOR_KERNEL_TEST_SOURCES})
target_link_libraries(processor_kernel_tests PRIVATE processor_kernels)
target_include_directories(processor_kernel_tests PRIVATE tests/libprocessor/kernels tests/libprocessor/live
                                                          tests/libprocessor/tables)
target_compile_definitions(processor_kernel_tests PRIVATE PROCESSOR_GOLDEN="${PROJECT_SOURCE_DIR}/tests/golden")
compile_in_batches(processor_kernel_tests 16)

# Only the C ABI, from 64 threads.
add_test_program(processor_stress tests/libprocessor/stress/stress.cc)
add_test_program(processor_early_reads tests/libprocessor/stress/early_reads.cc)

# The programs that tests/libprocessor/test_c_api.py links with the library; here they contain its objects.
foreach(name test_c_api test_c_api_drop_in test_c_api_host)
  add_test_program(processor_${name} tests/libprocessor/${name}.c)
  set_target_properties(processor_${name} PROPERTIES C_STANDARD 99 LINKER_LANGUAGE CXX)
  target_compile_definitions(processor_${name} PRIVATE _POSIX_C_SOURCE=200809L)
endforeach()

# Objects that threads share and TensorFlow does not touch: queues, deadlines, counters. The program needs no TensorFlow
# threads, whose own synchronization ThreadSanitizer would report as races. It has these sources, their tests and what they
# need.
set(PROCESSOR_THREAD_TEST_SOURCES
  libprocessor/src/base/free_memory.cc
  libprocessor/src/base/huge_memory.cc
  libprocessor/src/base/machine_memory.cc
  libprocessor/src/base/mapped_memory.cc
  libprocessor/src/base/memory_block.cc
  libprocessor/src/base/sha256.cc
  libprocessor/src/live/changed_rows.cc
  libprocessor/src/live/committed_memory.cc
  libprocessor/src/live/finite_changes.cc
  libprocessor/src/live/live_index.cc
  libprocessor/src/live/overlay_compaction.cc
  libprocessor/src/live/overlay_in_place.cc
  libprocessor/src/live/overlay_index.cc
  libprocessor/src/live/overlay_keys.cc
  libprocessor/src/live/overlay_memory.cc
  libprocessor/src/live/row_encoder.cc
  libprocessor/src/live/row_texts.cc
  libprocessor/src/live/table_view.cc
  libprocessor/src/runtime/batching/batcher_gather.cc
  libprocessor/src/runtime/requests/exception_status.cc
  libprocessor/src/runtime/stats/stats.cc
  libprocessor/src/runtime/threads/background_thread.cc
  libprocessor/src/runtime/threads/pinned_pool.cc
  libprocessor/src/runtime/threads/thread_slice.cc
  libprocessor/src/tables/direct_file.cc
  libprocessor/src/tables/embedding_table.cc
  libprocessor/src/tables/io_ring.cc
  libprocessor/src/tables/read_ahead.cc
  libprocessor/src/tables/read_batch.cc
  libprocessor/src/tables/read_ring.cc
  libprocessor/src/tables/read_threads.cc
  libprocessor/src/tables/resident_folder.cc
  libprocessor/src/tables/resident_memory.cc
  libprocessor/src/tables/resident_table.cc
  libprocessor/src/tables/row_caches.cc
  libprocessor/src/tables/row_runs.cc
  libprocessor/src/tables/table_check.cc
  libprocessor/src/tables/table_crc.cc
  libprocessor/src/tables/table_file.cc
  libprocessor/src/tables/table_header.cc
  libprocessor/src/tables/table_index.cc
  libprocessor/src/tables/table_registry.cc
  libprocessor/src/tables/tiered_fetch.cc
  libprocessor/src/tables/tiered_pieces.cc)
foreach(source
    base/byte_budget base/log host/control/maintenance host/request_log/sample_queue
    kernels/cache_domains kernels/tower_team live/overlay_table
    runtime/batching/batcher runtime/executor/step_runner runtime/requests/cancellation
    runtime/requests/request_gate runtime/requests/request_watch runtime/session/session_slot
    runtime/stats/histogram runtime/threads/adaptive_spin runtime/threads/cpu_mask runtime/threads/cpuset
    runtime/threads/idle_time runtime/threads/placed_threads runtime/threads/process_threads
    runtime/threads/request_threads runtime/threads/thread_starter tables/early_rows
    tables/row_cache tables/started_reads tables/tiered_rows)
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(stem ${source} NAME)
  list(APPEND PROCESSOR_THREAD_TEST_SOURCES libprocessor/src/${source}.cc tests/libprocessor/${folder}/test_${stem}.cc)
endforeach()
list(APPEND PROCESSOR_THREAD_TEST_SOURCES tests/libprocessor/base/test_kept_objects.cc
                                          tests/libprocessor/base/test_published.cc
                                          tests/libprocessor/live/test_overlay_compaction.cc)
add_unit_tests(processor_thread_tests ${PROCESSOR_THREAD_TEST_SOURCES})
target_include_directories(processor_thread_tests PRIVATE tests/libprocessor/kernels tests/libprocessor/live
                                                          tests/libprocessor/runtime tests/libprocessor/tables)
target_link_libraries(processor_thread_tests PRIVATE processor_flags)
# It runs under ThreadSanitizer only. Elsewhere it is compiled to see that its sources are complete.
if(NOT PROCESSOR_SANITIZE)
  target_compile_options(processor_thread_tests PRIVATE -O0)
endif()
# Without a precompiled header, the headers take more time than the code: all sources are compiled together.
compile_in_batches(processor_thread_tests 100)

# use_header_of_tests(OBJECTS): compile objects as PIE like processor_tests, whose precompiled header they use.
function(use_header_of_tests objects)
  target_link_libraries(${objects} PRIVATE processor_flags processor_messages GTest::gtest)
  target_compile_options(${objects} PRIVATE -O1 -fPIE)
  set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_precompile_headers(${objects} REUSE_FROM processor_tests)
endfunction()

# `make fuzz` runs rarely, so `make test` compiles its sources without linking them.
file(GLOB PROCESSOR_FUZZ_SOURCES CONFIGURE_DEPENDS libprocessor/fuzz/*.cc)
add_library(processor_fuzz_sources OBJECT EXCLUDE_FROM_ALL ${PROCESSOR_FUZZ_SOURCES})
target_include_directories(processor_fuzz_sources PRIVATE tests/libprocessor/codec tests/libprocessor/kernels
                                                          tests/libprocessor/tables)
use_header_of_tests(processor_fuzz_sources)

# Likewise the benchmarks that are built only on request; all sources of one are compiled at a time.
if(PROCESSOR_BENCH)
  add_custom_target(processor_bench_sources)
  foreach(program bench_codec bench_kernels)
    get_target_property(sources ${program} SOURCES)
    list(FILTER sources EXCLUDE REGEX "tests/|/main\\.cc$")
    add_library(${program}_sources OBJECT EXCLUDE_FROM_ALL ${sources})
    target_include_directories(${program}_sources PRIVATE $<TARGET_PROPERTY:${program},INCLUDE_DIRECTORIES>)
    use_header_of_tests(${program}_sources)
    compile_in_batches(${program}_sources 100)
    add_dependencies(processor_bench_sources ${program}_sources)
  endforeach()
endif()
