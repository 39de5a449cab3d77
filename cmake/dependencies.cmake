# SPDX-License-Identifier: Apache-2.0
# Finds the packages of the interpreter without importing them, because importing TensorFlow takes seconds.

# ask_package(PACKAGE CODE RESULT): sets RESULT to the output of the Python code, which fails if the package is missing.
function(ask_package package code result)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "${code}" OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "The Python package ${package} is not installed for ${Python_EXECUTABLE}; see docs/building.md")
  endif()
  set(${result} ${answer} PARENT_SCOPE)
endfunction()

function(find_python_package name result)
  ask_package(${name} "import importlib.util as u
print(u.find_spec('${name}').submodule_search_locations[0])" folder)
  set(${result} ${folder} PARENT_SCOPE)
endfunction()

find_python_package(tensorflow TENSORFLOW_DIR)
find_python_package(nlohmann_json NLOHMANN_DIR)
# The package contains the sources of the parser beside its binding.
find_python_package(simdjson SIMDJSON_DIR)
set(TENSORFLOW_INCLUDE_DIR ${TENSORFLOW_DIR}/include)
set(TENSORFLOW_LIBRARIES ${TENSORFLOW_DIR}/libtensorflow_cc.so.2 ${TENSORFLOW_DIR}/libtensorflow_framework.so.2)
set(NLOHMANN_INCLUDE_DIR ${NLOHMANN_DIR}/include)

# The version that the binding compares with the installed one at run time.
ask_package(tensorflow "import importlib.metadata as m
try: print(m.version('tensorflow-cpu'))
except m.PackageNotFoundError: print(m.version('tensorflow'))" TENSORFLOW_VERSION)

# The oneDNN wheels install into include/ and lib/ of an environment. Their own record names the folder, even in the
# environment that pip makes for a build, which is not the prefix of its interpreter.
function(find_file_of_package package name result)
  ask_package(${package} "import importlib.metadata as m, os
print(next(os.path.realpath(f.locate()) for f in m.files('${package}') if str(f).endswith('/${name}')))" file)
  set(${result} ${file} PARENT_SCOPE)
endfunction()

find_file_of_package(onednn-devel-cpu-gomp include/oneapi/dnnl/dnnl.h ONEDNN_HEADER)
get_filename_component(ONEDNN_INCLUDE_DIR ${ONEDNN_HEADER}/../../.. ABSOLUTE)
find_file_of_package(onednn-cpu-gomp libdnnl.so.3 ONEDNN_LIBRARY)
get_filename_component(ONEDNN_LIBRARY_DIR ${ONEDNN_LIBRARY} DIRECTORY)
# Only relative paths, so that an installed library finds the packages that are installed beside it: TensorFlow in
# site-packages, oneDNN in the prefix. A checkout has neither beside it, so it names the path to its own environment.
set(PROCESSOR_RUNPATH "$ORIGIN:$ORIGIN/../tensorflow:$ORIGIN/../../..")
if(NOT SKBUILD)
  file(RELATIVE_PATH TENSORFLOW_FROM_CHECKOUT ${CMAKE_CURRENT_SOURCE_DIR}/processor ${TENSORFLOW_DIR})
  file(RELATIVE_PATH ONEDNN_FROM_CHECKOUT ${CMAKE_CURRENT_SOURCE_DIR}/processor ${ONEDNN_LIBRARY_DIR})
  string(APPEND PROCESSOR_RUNPATH ":$ORIGIN/${TENSORFLOW_FROM_CHECKOUT}:$ORIGIN/${ONEDNN_FROM_CHECKOUT}")
endif()
