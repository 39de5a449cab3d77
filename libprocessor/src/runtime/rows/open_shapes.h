// SPDX-License-Identifier: Apache-2.0
// Finds shapes that the shape functions of ops do not determine.
#ifndef PROCESSOR_RUNTIME_ROWS_OPEN_SHAPES_H_
#define PROCESSOR_RUNTIME_ROWS_OPEN_SHAPES_H_

#include "src/runtime/rows/row_graph.h"

namespace processor {

/// Sets in the graph the shapes of a tower's outputs, of tensors all of whose rows RecCollapseRows has kept, and of
/// lookups in a table of the initializer. Does nothing for other ops.
void SetOpenShapes(const tensorflow::Node& node, RowGraph* graph);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_OPEN_SHAPES_H_
