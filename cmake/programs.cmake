# SPDX-License-Identifier: Apache-2.0
# Links the programs of tests/libprocessor and libprocessor/bench.
include_guard(GLOBAL)

# GNU ld takes seconds to read the symbols of TensorFlow's libraries; its companion gold, which is not everywhere, does not.
find_program(GOLD_LINKER ld.gold)

# link_program(TARGET FOLDER LIBRARIES...): the libraries, TensorFlow and oneDNN; the program goes to FOLDER of the build.
function(link_program target folder)
  # libtensorflow_cc registers the kernels. The linker would drop it if no symbol of it is used directly.
  target_link_options(${target} PRIVATE -Wl,--no-as-needed)
  if(GOLD_LINKER AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT PROCESSOR_SANITIZE)
    target_link_options(${target} PRIVATE -fuse-ld=gold)
  endif()
  target_link_libraries(${target} PRIVATE ${ARGN} ${TENSORFLOW_LIBRARIES} ${ONEDNN_LIBRARY})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder})
endfunction()
