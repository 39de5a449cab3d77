# SPDX-License-Identifier: Apache-2.0
# Programs of tests/libprocessor. They hold the library's objects instead of linking the library: tests reach what it
# does not export, and a sanitizer's runtime comes first without being preloaded.
include(cmake/messages.cmake)
find_package(GTest REQUIRED)

function(add_test_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE processor_objects)
  target_link_options(${name} PRIVATE -Wl,--no-as-needed)
  target_link_libraries(${name} PRIVATE ${TENSORFLOW_LIBRARIES} ${ONEDNN_LIBRARY})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

file(GLOB PROCESSOR_TEST_SOURCES CONFIGURE_DEPENDS tests/libprocessor/runtime/test_*.cc
                                                   tests/libprocessor/codec/test_*.cc)
add_test_program(processor_tests ${PROCESSOR_TEST_SOURCES} tests/libprocessor/codec/oracle.cc)
target_link_libraries(processor_tests PRIVATE processor_messages GTest::gtest_main)
target_include_directories(processor_tests PRIVATE tests/libprocessor/codec tests/libprocessor/runtime)

# The C ABI alone, from 64 threads.
add_test_program(processor_stress tests/libprocessor/stress/stress.cc)

# The programs that tests/libprocessor/test_c_api.py links with the library, here with its objects.
foreach(name test_c_api test_c_api_drop_in)
  add_test_program(processor_${name} tests/libprocessor/${name}.c)
  set_target_properties(processor_${name} PROPERTIES C_STANDARD 99 LINKER_LANGUAGE CXX)
  target_compile_definitions(processor_${name} PRIVATE _POSIX_C_SOURCE=200809L)
endforeach()
