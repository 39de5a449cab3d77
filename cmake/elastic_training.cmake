# SPDX-License-Identifier: Apache-2.0
# The ops of the elastic_training package, in a library that stock TensorFlow loads. They need nothing of libprocessor.

set(ELASTIC_DIR ${CMAKE_CURRENT_SOURCE_DIR}/elastic_training)
add_library(elastic_flags INTERFACE)
target_include_directories(elastic_flags INTERFACE ${ELASTIC_DIR})
target_include_directories(elastic_flags SYSTEM INTERFACE ${TENSORFLOW_INCLUDE_DIR} ${NLOHMANN_INCLUDE_DIR})
target_compile_definitions(elastic_flags INTERFACE NDEBUG EIGEN_MAX_ALIGN_BYTES=64 _GLIBCXX_USE_CXX11_ABI=1)
# Products and sums are rounded separately, as in NumPy. Without the flags of floating-point exceptions and errno, square
# roots become one instruction.
target_compile_options(elastic_flags INTERFACE -fvisibility=hidden -Wall -Wextra -Wno-sign-compare -ffp-contract=off
                                               -fno-math-errno -fno-trapping-math)
target_link_libraries(elastic_flags INTERFACE Threads::Threads)
if(PROCESSOR_SANITIZE)
  target_compile_options(elastic_flags INTERFACE -fsanitize=${PROCESSOR_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(elastic_flags INTERFACE -fsanitize=${PROCESSOR_SANITIZE})
endif()

# The steps of optimizers have a form for each instruction set, chosen at run time. A precompiled header for other
# instruction sets cannot be used.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  target_compile_definitions(elastic_flags INTERFACE ELASTIC_TRAINING_X86)
  set_source_files_properties(${ELASTIC_DIR}/src/optimizers/update_kernels_avx2.cc PROPERTIES
    COMPILE_OPTIONS "-mavx2" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  # GCC's own header leaves variables uninitialized on purpose.
  set_source_files_properties(${ELASTIC_DIR}/src/optimizers/update_kernels_avx512.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-Wno-maybe-uninitialized;-Wno-uninitialized"
    SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endif()
set_source_files_properties(${ELASTIC_DIR}/src/optimizers/update_kernels.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# Rows, optimizers and policies: plain C++ without TensorFlow, so that tests of threads run under ThreadSanitizer.
file(GLOB_RECURSE ELASTIC_STORAGE_SOURCES CONFIGURE_DEPENDS ${ELASTIC_DIR}/src/*.cc)
list(FILTER ELASTIC_STORAGE_SOURCES EXCLUDE REGEX "/src/ops/")
add_library(elastic_storage OBJECT ${ELASTIC_STORAGE_SOURCES})
target_link_libraries(elastic_storage PUBLIC elastic_flags)
target_compile_options(elastic_storage PRIVATE -fmacro-prefix-map=${TENSORFLOW_INCLUDE_DIR}/=
                                               -fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=)
target_precompile_headers(elastic_storage PRIVATE <algorithm> <memory> <string> <vector> <nlohmann/json.hpp>)
compile_in_batches(elastic_storage 16)

if(PROCESSOR_TESTS)
  find_package(GTest REQUIRED)
  file(GLOB_RECURSE ELASTIC_TEST_SOURCES CONFIGURE_DEPENDS tests/elastic_training/src/test_*.cc)
  add_executable(elastic_training_tests EXCLUDE_FROM_ALL ${ELASTIC_TEST_SOURCES})
  target_link_libraries(elastic_training_tests PRIVATE elastic_storage GTest::gtest_main)
  target_compile_options(elastic_training_tests PRIVATE -O1)
  target_precompile_headers(elastic_training_tests PRIVATE <string> <vector> <gtest/gtest.h> <nlohmann/json.hpp>)
  compile_in_batches(elastic_training_tests 8)
  set_target_properties(elastic_training_tests PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

  # The optimizers as C functions, for tests that compare them with NumPy.
  add_library(elastic_optimizer_probe MODULE EXCLUDE_FROM_ALL
              tests/elastic_training/src/optimizers/optimizer_probe.cc)
  target_link_libraries(elastic_optimizer_probe PRIVATE elastic_storage)
  set_target_properties(elastic_optimizer_probe PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()

add_executable(bench_row_log EXCLUDE_FROM_ALL elastic_training/bench/bench_row_log.cc)
target_link_libraries(bench_row_log PRIVATE elastic_storage)
set_target_properties(bench_row_log PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)

file(GLOB ELASTIC_OP_SOURCES CONFIGURE_DEPENDS ${ELASTIC_DIR}/src/ops/*.cc)
add_library(elastic_training MODULE ${ELASTIC_OP_SOURCES})
compile_in_batches(elastic_training 16)
target_compile_options(elastic_training PRIVATE -fmacro-prefix-map=${TENSORFLOW_INCLUDE_DIR}/=
                                                -fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=)
# A library of ops registers them when it is loaded, and needs no symbol of TensorFlow's C++ API.
target_link_libraries(elastic_training PRIVATE elastic_storage elastic_flags
                                               ${TENSORFLOW_DIR}/libtensorflow_framework.so.2)
set_target_properties(elastic_training PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN/../tensorflow"
  INSTALL_RPATH_USE_LINK_PATH OFF)
if(NOT SKBUILD AND NOT PROCESSOR_SANITIZE)
  # In a checkout, the library is put where the package looks for it.
  set_target_properties(elastic_training PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${ELASTIC_DIR})
endif()
