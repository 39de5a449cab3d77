// SPDX-License-Identifier: Apache-2.0
// Lines of the last minutes, drawn as SVG.

import { svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 30;

/** Round up to 1, 2 or 5 times a power of ten, so that the scale does not move with every point. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= value * 0.999);
}

function path(points, column, start, span, top) {
  let text = "";
  let pen = false;
  for (const point of points) {
    const value = point[column];
    if (value === null || value === undefined) {
      pen = false;
      continue;
    }
    const x = ((point[0] - start) / span) * WIDTH;
    const y = HEIGHT - 1 - (Math.min(value, top) / top) * (HEIGHT - 2);
    text += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  }
  return text;
}

/**
 * Draw lines over the same time and scale.
 *
 * `lines` are [class, column of the points]; `limit`, if given, is a dashed line.
 */
export function sparkline({ points, lines, top, seconds, label, limit }) {
  const end = points.length ? points.at(-1)[0] : 0;
  const start = end - seconds;
  const shown = points.filter((one) => one[0] >= start);
  const level = limit !== null && limit !== undefined && limit <= top ? HEIGHT - 1 - (limit / top) * (HEIGHT - 2) : null;
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("path", { class: "axis", d: `M0 ${HEIGHT - 0.5}H${WIDTH}` }),
    level === null ? null : svg("path", { class: "limit", d: `M0 ${level.toFixed(1)}H${WIDTH}` }),
    lines.map(([kind, column]) => svg("path", { class: `line ${kind}`, d: path(shown, column, start, seconds, top) })),
  );
}
