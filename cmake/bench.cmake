# SPDX-License-Identifier: Apache-2.0
# The benchmarks of libprocessor/bench. They open the library as a host does. Only those of codecs and kernels contain its
# objects; they take long to compile and are built only on request.
include(cmake/messages.cmake)
include(cmake/programs.cmake)

# add_bench(NAME SOURCES...): bench_NAME.cc with the common main function.
function(add_bench name)
  add_executable(bench_${name} libprocessor/bench/main.cc libprocessor/bench/bench_${name}.cc ${ARGN})
  link_program(bench_${name} bench processor_flags ${CMAKE_DL_LIBS} -l:libgomp.so.1)
  target_include_directories(bench_${name} PRIVATE libprocessor/bench)
endfunction()

add_bench(serving
  libprocessor/bench/answers.cc
  libprocessor/bench/measure.cc
  libprocessor/bench/onednn_engine.cc
  libprocessor/bench/peer_engine.cc
  libprocessor/bench/processor_engine.cc
  libprocessor/bench/request_file.cc
  libprocessor/bench/stock_engine.cc)
add_bench(lifecycle libprocessor/bench/request_file.cc)
add_bench(open_loop libprocessor/bench/request_file.cc)
add_bench(live)
compile_in_batches(bench_serving 100)
compile_in_batches(bench_lifecycle 100)
compile_in_batches(bench_open_loop 100)
compile_in_batches(bench_live 100)

add_bench(codec libprocessor/bench/codec_requests.cc
          tests/libprocessor/codec/oracle.cc tests/libprocessor/codec/kserve_oracle.cc)
target_link_libraries(bench_codec PRIVATE processor_objects processor_kernels processor_messages)
target_include_directories(bench_codec PRIVATE tests/libprocessor/codec)

# Random reads with the code that reads tiered tables.
add_bench(reads libprocessor/src/tables/direct_file.cc libprocessor/src/tables/io_ring.cc
          libprocessor/src/tables/read_batch.cc libprocessor/src/tables/read_ring.cc
          libprocessor/src/tables/read_threads.cc libprocessor/src/tables/table_file.cc)
target_link_libraries(bench_reads PRIVATE processor_shared_base)

# The table of a tiered model in RocksDB, where its library is installed. Without TensorFlow, which exports symbols of
# libraries that RocksDB has, too.
find_path(ROCKSDB_INCLUDE_DIR rocksdb/db.h)
find_library(ROCKSDB_LIBRARY rocksdb)
if(ROCKSDB_INCLUDE_DIR AND ROCKSDB_LIBRARY)
  add_executable(bench_rocksdb libprocessor/bench/main.cc libprocessor/bench/bench_rocksdb.cc)
  target_include_directories(bench_rocksdb PRIVATE libprocessor/bench ${NLOHMANN_INCLUDE_DIR})
  target_include_directories(bench_rocksdb SYSTEM PRIVATE ${ROCKSDB_INCLUDE_DIR})
  target_link_libraries(bench_rocksdb PRIVATE ${ROCKSDB_LIBRARY} pthread)
  set_target_properties(bench_rocksdb PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endif()

# The kernels, compared with bare oneDNN and plain C++.
file(GLOB PROCESSOR_KERNEL_CASES CONFIGURE_DEPENDS libprocessor/bench/kernels/*.cc)
add_bench(kernels ${PROCESSOR_KERNEL_CASES})
target_link_libraries(bench_kernels PRIVATE processor_kernels)
target_include_directories(bench_kernels PRIVATE tests/libprocessor tests/libprocessor/tables)
set_target_properties(bench_codec bench_kernels PROPERTIES EXCLUDE_FROM_ALL ON)
