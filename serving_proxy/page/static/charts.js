// SPDX-License-Identifier: Apache-2.0
// Charts of the last minutes: lines as SVG, and the numbers of the axes as text next to them.

import { h, svg } from "./dom.js";
import { duration, short } from "./format.js";

const WIDTH = 240;
const HEIGHT = 60;
const STEPS = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
// A scale includes a limit of at most this many times the height that the lines need.
const LIMIT_TO_TOP = 2.5;
// A scale cuts off values above this multiple of the 90th percentile, so that one spike does not flatten the rest.
const WORST_TO_USUAL = 4;

/** Round up to a number that reads well on an axis, so that the scale does not move with every point. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return STEPS.map((step) => step * unit).find((top) => top >= value * 0.999);
}

/** Return the upper end of a scale for values; `limit`, if given, is included if the lines stay readable. */
export function scaleFor(values, limit) {
  const sorted = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  if (sorted.length === 0) return 1;
  const usual = sorted[Math.floor(0.9 * (sorted.length - 1))];
  const top = Math.min(sorted.at(-1), WORST_TO_USUAL * usual || sorted.at(-1));
  const shown = limit !== null && limit !== undefined && limit <= LIMIT_TO_TOP * top ? Math.max(top, limit * 1.05) : top;
  return ceiling(shown);
}

const level = (value, top) => HEIGHT - (Math.min(value, top) / top) * HEIGHT;

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
    text += `${pen ? "L" : "M"}${x.toFixed(1)} ${level(value, top).toFixed(1)}`;
    pen = true;
  }
  return text;
}

/**
 * Draw lines over the same time and scale, with the numbers of both axes.
 *
 * `lines` are [class, column of the points]; `limit`, if given, is a dashed line.
 */
export function chart({ points, lines, top, unit, seconds, label, limit }) {
  const end = points.length ? points.at(-1)[0] : 0;
  const start = end - seconds;
  const shown = points.filter((point) => point[0] >= start);
  const limited = limit !== null && limit !== undefined && limit <= top;
  const grid = [0, 0.5, 1].map((part) => `M0 ${(part * HEIGHT).toFixed(1)}H${WIDTH}`).join("");
  return h(
    "div",
    { class: "chart", role: "img", "aria-label": label },
    h("div", { class: "scale", "aria-hidden": "true" }, h("span", {}, `${short(top)}${unit}`), h("span", {}, short(top / 2)), h("span", {}, "0")),
    svg(
      "svg",
      { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("path", { class: "axis", d: grid }),
      limited ? svg("path", { class: "limit", d: `M0 ${level(limit, top).toFixed(1)}H${WIDTH}` }) : null,
      lines.map(([kind, column]) => svg("path", { class: `line ${kind}`, d: path(shown, column, start, seconds, top) })),
    ),
    h("div", { class: "times", "aria-hidden": "true" }, h("span", {}, `${duration(seconds)} ago`), h("span", {}, "now")),
  );
}
