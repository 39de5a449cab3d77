# SPDX-License-Identifier: Apache-2.0
# The event loop of the simulator: plain C++ without dependencies, loaded by cost_model/simulation/engine.py.
add_library(cost_model_engine SHARED cost_model/simulation/engine.cc)
target_compile_options(cost_model_engine PRIVATE -O3 -fvisibility=hidden -fno-math-errno -Wall -Wextra)
if(NOT SKBUILD AND NOT PROCESSOR_SANITIZE)
  # In a checkout, the library is put where the package looks for it.
  set_target_properties(cost_model_engine PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/cost_model/simulation)
endif()
