# SPDX-License-Identifier: Apache-2.0
# Protobuf code that is generated from protos/ for tests, benchmarks and fuzzers. The library itself uses none.
include_guard(GLOBAL)

# The compiler of the environment is preferred, because its version fits TensorFlow's protobuf headers.
get_filename_component(PYTHON_BIN ${Python_EXECUTABLE} DIRECTORY)
find_program(PROTOC protoc HINTS ${PYTHON_BIN} REQUIRED)

set(PROTOS ${CMAKE_CURRENT_SOURCE_DIR}/protos)
set(MESSAGES_DIR ${CMAKE_BINARY_DIR}/messages)
file(MAKE_DIRECTORY ${MESSAGES_DIR})
# These also stand in for protos/tensorflow, whose messages C++ has from TensorFlow.
set(TENSORFLOW_DESCRIPTORS ${MESSAGES_DIR}/tensorflow.binpb)
set(WRITE_DESCRIPTORS ${CMAKE_CURRENT_SOURCE_DIR}/tools/tensorflow_descriptors.py)
add_custom_command(
  OUTPUT ${TENSORFLOW_DESCRIPTORS}
  COMMAND ${Python_EXECUTABLE} ${WRITE_DESCRIPTORS} ${TENSORFLOW_DESCRIPTORS}
  DEPENDS ${WRITE_DESCRIPTORS} VERBATIM)

set(MESSAGE_NAMES inference predict prediction_log tensorflow_serving tensorflow error_codes)
list(TRANSFORM MESSAGE_NAMES APPEND .proto OUTPUT_VARIABLE MESSAGE_FILES)
list(TRANSFORM MESSAGE_NAMES REPLACE "(.+)" "${MESSAGES_DIR}/\\1.pb.cc" OUTPUT_VARIABLE MESSAGE_SOURCES)
list(TRANSFORM MESSAGE_NAMES REPLACE "(.+)" "${MESSAGES_DIR}/\\1.pb.h" OUTPUT_VARIABLE MESSAGE_HEADERS)
file(GLOB PROTO_FILES CONFIGURE_DEPENDS ${PROTOS}/*.proto)
add_custom_command(
  OUTPUT ${MESSAGE_SOURCES} ${MESSAGE_HEADERS}
  COMMAND ${PROTOC} --proto_path=${PROTOS} --descriptor_set_in=${TENSORFLOW_DESCRIPTORS} --cpp_out=${MESSAGES_DIR}
          ${MESSAGE_FILES}
  DEPENDS ${PROTO_FILES} ${TENSORFLOW_DESCRIPTORS} VERBATIM)

add_library(processor_messages OBJECT EXCLUDE_FROM_ALL ${MESSAGE_SOURCES})
target_include_directories(processor_messages PUBLIC ${MESSAGES_DIR})
target_link_libraries(processor_messages PUBLIC processor_flags)
# Generated code has unused parameters.
target_compile_options(processor_messages PRIVATE -w)
