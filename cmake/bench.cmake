# SPDX-License-Identifier: Apache-2.0
# The benchmarks of libprocessor/bench. They open the library as a host does; only that of the codecs holds its objects.
include(cmake/messages.cmake)

function(add_bench name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE processor_flags ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE -Wl,--no-as-needed)
  target_link_libraries(${name} PRIVATE ${TENSORFLOW_LIBRARIES} ${ONEDNN_LIBRARY} -l:libgomp.so.1)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()

add_bench(bench_serving
  libprocessor/bench/bench_serving.cc
  libprocessor/bench/answers.cc
  libprocessor/bench/host_engine.cc
  libprocessor/bench/measure.cc
  libprocessor/bench/onednn_engine.cc
  libprocessor/bench/peer_engine.cc
  libprocessor/bench/processor_engine.cc
  libprocessor/bench/request_file.cc
  libprocessor/bench/stock_engine.cc)
compile_in_batches(bench_serving 5)
add_bench(bench_lifecycle libprocessor/bench/bench_lifecycle.cc libprocessor/bench/request_file.cc)
add_bench(bench_open_loop libprocessor/bench/bench_open_loop.cc libprocessor/bench/request_file.cc)

add_bench(bench_codec libprocessor/bench/bench_codec.cc libprocessor/bench/codec_requests.cc
          tests/libprocessor/codec/oracle.cc tests/libprocessor/codec/kserve_oracle.cc)
target_link_libraries(bench_codec PRIVATE processor_objects processor_kernels processor_messages)
target_include_directories(bench_codec PRIVATE tests/libprocessor/codec)
# Generated code takes long to compile, and the demo has no use for it.
set_target_properties(bench_codec PROPERTIES EXCLUDE_FROM_ALL ON)

# The kernels, against bare oneDNN and plain C++.
file(GLOB PROCESSOR_KERNEL_CASES CONFIGURE_DEPENDS libprocessor/bench/kernels/*.cc)
add_bench(bench_kernels libprocessor/bench/bench_kernels.cc ${PROCESSOR_KERNEL_CASES})
target_link_libraries(bench_kernels PRIVATE processor_kernels)
target_include_directories(bench_kernels PRIVATE libprocessor/bench)
set_target_properties(bench_kernels PROPERTIES EXCLUDE_FROM_ALL ON)
