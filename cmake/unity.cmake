# SPDX-License-Identifier: Apache-2.0
# Sources that are compiled some at a time. TensorFlow's headers, and what is instantiated of them, take most of the time
# of each compiler, be they precompiled or not. Sources of a target therefore do not share names in anonymous namespaces.

function(compile_in_batches target size)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${PROCESSOR_UNITY} UNITY_BUILD_BATCH_SIZE ${size} UNITY_BUILD_RELOCATABLE ON)
endfunction()
