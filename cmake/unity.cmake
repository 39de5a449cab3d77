# SPDX-License-Identifier: Apache-2.0
# Compiles several sources of a target as one file, since TensorFlow's headers take most of the time of each compiler, even
# precompiled. Such sources see each other's anonymous namespaces, so each name may be there once (tools/check_names.py).

function(compile_in_batches target size)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${PROCESSOR_UNITY} UNITY_BUILD_BATCH_SIZE ${size} UNITY_BUILD_RELOCATABLE ON)
endfunction()
