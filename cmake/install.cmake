# SPDX-License-Identifier: Apache-2.0
# The files of the wheel beside the Python files: the library, its headers, and the generated files of the binding.

set(GENERATED_DIR ${CMAKE_CURRENT_BINARY_DIR}/generated)
set(BINDING_FILES ${GENERATED_DIR}/_abi.py ${GENERATED_DIR}/_build.py)
add_custom_command(
  OUTPUT ${BINDING_FILES}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${GENERATED_DIR}
  COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/processor/_build_ffi.py
          ${CMAKE_CURRENT_SOURCE_DIR}/libprocessor/include/processor/processor.h ${GENERATED_DIR}
  DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/processor/_build_ffi.py ${CMAKE_CURRENT_SOURCE_DIR}/processor/_cdef.py
          ${CMAKE_CURRENT_SOURCE_DIR}/libprocessor/include/processor/processor.h
  COMMENT "Generating the Python binding from processor.h")
if(SKBUILD)
  add_custom_target(binding ALL DEPENDS ${BINDING_FILES})
else()
  add_custom_target(binding ALL
    COMMAND ${CMAKE_COMMAND} -E copy_if_different ${BINDING_FILES} ${CMAKE_CURRENT_SOURCE_DIR}/processor
    DEPENDS ${BINDING_FILES}
    COMMENT "Copying the Python binding to processor/")
endif()

install(TARGETS processor processor_rules LIBRARY DESTINATION processor)
install(TARGETS cost_model_engine LIBRARY DESTINATION cost_model/simulation)
install(TARGETS elastic_training LIBRARY DESTINATION elastic_training)
install(FILES libprocessor/include/processor/processor.h libprocessor/include/processor/deeprec.h
        DESTINATION processor/include/processor)
install(FILES ${BINDING_FILES} DESTINATION processor)
