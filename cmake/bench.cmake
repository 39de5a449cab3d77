# SPDX-License-Identifier: Apache-2.0
# The benchmarks of libprocessor/bench. They open the library as a host does; they do not link it.

function(add_bench name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE processor_flags ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE -Wl,--no-as-needed)
  target_link_libraries(${name} PRIVATE ${TENSORFLOW_LIBRARIES} ${ONEDNN_LIBRARY})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()

add_bench(bench_serving
  libprocessor/bench/bench_serving.cc
  libprocessor/bench/answers.cc
  libprocessor/bench/measure.cc
  libprocessor/bench/processor_engine.cc
  libprocessor/bench/request_file.cc
  libprocessor/bench/stock_engine.cc)
add_bench(bench_lifecycle libprocessor/bench/bench_lifecycle.cc libprocessor/bench/request_file.cc)
