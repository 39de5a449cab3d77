# SPDX-License-Identifier: Apache-2.0
# The sources of the codecs, for the library and, with sanitizers, for the fuzzer.
set(CODEC_DIR ${CMAKE_CURRENT_SOURCE_DIR}/libprocessor/src/codec)

# The sources that include the JSON parser. Its header has 150,000 lines, so no other source should include it.
set(PROCESSOR_JSON_SOURCES
  ${CODEC_DIR}/example_json.cc
  ${CODEC_DIR}/json_document.cc
  ${CODEC_DIR}/json_values.cc
  ${CODEC_DIR}/json_writer.cc
  ${CODEC_DIR}/kserve_json.cc
  ${CODEC_DIR}/kserve_json_body.cc
  ${CODEC_DIR}/peek_json.cc
  ${CODEC_DIR}/tfserving_json.cc
  ${CODEC_DIR}/tfserving_json_examples.cc)

set(PROCESSOR_CODEC_SOURCES
  ${CODEC_DIR}/codec.cc
  ${CODEC_DIR}/descriptions.cc
  ${CODEC_DIR}/descriptions_kserve.cc
  ${CODEC_DIR}/descriptions_tfserving.cc
  ${CODEC_DIR}/descriptions_triton.cc
  ${CODEC_DIR}/eas.cc
  ${CODEC_DIR}/examples.cc
  ${CODEC_DIR}/kserve.cc
  ${CODEC_DIR}/kserve_request.cc
  ${CODEC_DIR}/kserve_parameters.cc
  ${CODEC_DIR}/kserve_tensors.cc
  ${CODEC_DIR}/model_spec.cc
  ${CODEC_DIR}/peek_input.cc
  ${CODEC_DIR}/prediction_log.cc
  ${CODEC_DIR}/protocols.cc
  ${CODEC_DIR}/tfserving.cc
  ${CODEC_DIR}/tfserving_examples.cc
  ${CODEC_DIR}/values.cc
  ${PROCESSOR_JSON_SOURCES}
  ${SIMDJSON_DIR}/simdjson.cpp)

# For the whole target, although only PROCESSOR_JSON_SOURCES may include the parser: a source with options of its own
# would be compiled alone.
function(add_json_parser target)
  target_include_directories(${target} SYSTEM PRIVATE ${SIMDJSON_DIR})
  target_compile_options(${target} PRIVATE -fmacro-prefix-map=${SIMDJSON_DIR}/=)
endfunction()

# Called in each folder that compiles the parser, because properties of sources belong to a folder.
function(set_json_properties)
  set_source_files_properties(${SIMDJSON_DIR}/simdjson.cpp PROPERTIES COMPILE_OPTIONS -w SKIP_PRECOMPILE_HEADERS ON)
endfunction()
set_json_properties()
