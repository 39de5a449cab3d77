# SPDX-License-Identifier: Apache-2.0
# Compiles several sources of a target as one file, because TensorFlow's headers take most of the time of each compilation,
# even precompiled. Such sources share anonymous namespaces, so each name may occur there only once (tools/check_names.py).

function(compile_in_batches target size)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${PROCESSOR_UNITY} UNITY_BUILD_BATCH_SIZE ${size} UNITY_BUILD_RELOCATABLE ON)
endfunction()
