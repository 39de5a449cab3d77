# SPDX-License-Identifier: Apache-2.0
# The library for `make dist`, with everything that it needs in its own folder, and the files with which pkg-config and
# CMake find it there. tools/make_dist.py makes the archive.
include(CMakePackageConfigHelpers)

set(DIST_DIR ${CMAKE_CURRENT_BINARY_DIR}/dist)
get_target_property(DIST_LIBRARIES processor LINK_LIBRARIES)
get_target_property(DIST_OPTIONS processor LINK_OPTIONS)

add_library(processor_dist SHARED EXCLUDE_FROM_ALL)
# oneDNN needs libgomp but does not name its folder. As a dependency of our library, it is found in our folder.
target_link_libraries(processor_dist PRIVATE ${DIST_LIBRARIES} -l:libgomp.so.1)
target_link_options(processor_dist PRIVATE ${DIST_OPTIONS})
set_target_properties(processor_dist PROPERTIES
  OUTPUT_NAME processor
  LIBRARY_OUTPUT_DIRECTORY ${DIST_DIR}
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/libprocessor/symbols.map
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "$ORIGIN"
  INSTALL_RPATH_USE_LINK_PATH OFF)

configure_file(cmake/recprocessor.pc.in ${DIST_DIR}/recprocessor.pc @ONLY)
configure_file(cmake/recprocessorConfig.cmake.in ${DIST_DIR}/recprocessorConfig.cmake COPYONLY)
# Before 1.0, a minor release may change the API; the ABI has its own version.
write_basic_package_version_file(${DIST_DIR}/recprocessorConfigVersion.cmake
                                 VERSION ${PROCESSOR_VERSION} COMPATIBILITY SameMinorVersion)
