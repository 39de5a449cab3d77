# SPDX-License-Identifier: Apache-2.0
# Protobuf code generated from libprocessor/proto, for tests, benchmarks and fuzzers: the library itself has none.
include_guard(GLOBAL)

# The environment's before any other: its version is the one that TensorFlow's protobuf headers demand.
get_filename_component(PYTHON_BIN ${Python_EXECUTABLE} DIRECTORY)
find_program(PROTOC protoc HINTS ${PYTHON_BIN} REQUIRED)

set(MESSAGES_DIR ${CMAKE_BINARY_DIR}/messages)
file(MAKE_DIRECTORY ${MESSAGES_DIR})
add_custom_command(
  OUTPUT ${MESSAGES_DIR}/tensorflow.pb
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/libprocessor/proto/descriptors.py ${MESSAGES_DIR}/tensorflow.pb
  DEPENDS libprocessor/proto/descriptors.py VERBATIM)
foreach(stem predict tfserving kserve)
  add_custom_command(
    OUTPUT ${MESSAGES_DIR}/proto/${stem}.pb.cc ${MESSAGES_DIR}/proto/${stem}.pb.h
    COMMAND ${PROTOC} --proto_path=${CMAKE_CURRENT_SOURCE_DIR}/libprocessor
            --descriptor_set_in=${MESSAGES_DIR}/tensorflow.pb --cpp_out=${MESSAGES_DIR}
            ${CMAKE_CURRENT_SOURCE_DIR}/libprocessor/proto/${stem}.proto
    DEPENDS libprocessor/proto/${stem}.proto ${MESSAGES_DIR}/tensorflow.pb VERBATIM)
endforeach()

add_library(processor_messages OBJECT EXCLUDE_FROM_ALL ${MESSAGES_DIR}/proto/predict.pb.cc
            ${MESSAGES_DIR}/proto/tfserving.pb.cc ${MESSAGES_DIR}/proto/kserve.pb.cc)
target_include_directories(processor_messages PUBLIC ${MESSAGES_DIR})
target_link_libraries(processor_messages PUBLIC processor_flags)
# Generated code has unused parameters.
target_compile_options(processor_messages PRIVATE -w)
