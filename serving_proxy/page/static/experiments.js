// SPDX-License-Identifier: Apache-2.0
// Experiments: variants and shadow versions compared with the baseline, within the guard's window.

import { h } from "./dom.js";
import { milliseconds, NONE, percent, short } from "./format.js";

const COLUMNS = ["Model", "Variant", "Requests", "Errors", "p99", "Compared", "Rank correlation", "Score difference", "NaN"];

function rows(state) {
  return state.status.models.flatMap((model) => {
    const guard = state.guards[model.name];
    const baseline = guard?.versions[model.baseline];
    return model.versions
      .filter((version) => version.version !== model.baseline && (version.shadow > 0 || version.role === "variant"))
      .map((version) => row(model, version, guard?.versions[version.version], baseline, guard?.settings));
  });
}

function row(model, version, verdict, baseline, settings) {
  const cell = (column, value, beside, bad) =>
    h(
      "td",
      { role: "cell", "data-label": COLUMNS[column], class: bad ? "bad" : value === NONE ? "none" : null },
      value,
      beside === null || value === NONE ? null : h("span", { class: "muted" }, ` ${beside}`),
    );
  const scores = verdict?.scores;
  const found = (what) => verdict?.findings.find((two) => two.what === what)?.ruling === "bad";
  const share = [version.traffic > 0 ? percent(version.traffic) : null, version.shadow > 0 ? `${percent(version.shadow)} mirrored` : null];
  const against = (value, format) => (value === null || value === undefined ? null : `baseline ${format(value)}`);
  const limit = settings?.min_correlation;
  return h(
    "tr",
    { role: "row", key: `${model.name}/${version.version}` },
    h("th", { role: "rowheader", scope: "row" }, model.name),
    cell(1, String(version.version), share.filter(Boolean).join(", ")),
    cell(2, short(verdict?.role === "shadow" ? scores?.compared : verdict?.requests), null),
    cell(3, percent(verdict?.error_percent), against(baseline?.error_percent, percent), found("errors")),
    cell(4, milliseconds(verdict?.p99_ms), against(baseline?.p99_ms, milliseconds), found("p99")),
    cell(5, scores ? short(scores.compared) : NONE, scores && (scores.dropped || scores.failed) ? `${short(scores.dropped)} dropped, ${short(scores.failed)} failed` : null),
    cell(6, scores?.correlation === null || !scores ? NONE : scores.correlation.toFixed(4), limit === null || limit === undefined ? null : `at least ${limit}`, found("correlation")),
    cell(7, scores ? short(scores.mean_difference) : NONE, scores && scores.max_difference !== null ? `largest ${short(scores.max_difference)}` : null, found("difference")),
    cell(8, percent(scores ? scores.nan_percent : verdict?.nan_percent), null, found("nan")),
  );
}

export function experimentsView(state) {
  const found = rows(state);
  return [
    h("h2", { id: "experiments-heading" }, "Experiments"),
    found.length
      ? h(
          "table",
          { class: "wide", role: "table", key: "table" },
          h("caption", { class: "hidden" }, "Variants and shadows beside their baselines"),
          h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((column) => h("th", { role: "columnheader", scope: "col" }, column)))),
          h("tbody", { role: "rowgroup" }, found),
        )
      : h("p", { class: "muted", key: "none" }, "No version has traffic besides the baseline, and none gets mirrored requests. To start an experiment: ", h("code", {}, "deploy … --traffic 10"), " or ", h("code", {}, "--shadow"), "."),
  ];
}
