// SPDX-License-Identifier: Apache-2.0
// The versions of a model: a row each, with charts; those without traffic are folded.

import { followAgain, promote, ramp } from "./actions.js";
import { chart, scaleFor } from "./charts.js";
import { h } from "./dom.js";
import { age, bytes, clock, duration, milliseconds, NONE, percent, short } from "./format.js";

export const GONE = new Set(["failed", "draining", "stopped"]);
const COLUMNS = ["Version", "State", "Share", "Requests/s", "Latency", "Errors", "Guard", "Actions"];
const LEAST_SECONDS = 60;
/** The columns of a point of the history. */
export const POINT = { at: 0, rate: 1, errors: 2, p50: 3, p99: 4 };
const unfolded = new Set();

/** Return the time span of the lines: that of the points, but not so short that two points look like a curve. */
function span(points, most) {
  const times = points.map((point) => point[POINT.at]);
  return times.length ? Math.min(most, Math.max(LEAST_SECONDS, Math.max(...times) - Math.min(...times))) : LEAST_SECONDS;
}

/** Return whether a version is idle: not the baseline, without requests or mirrored requests, and not about to change. */
function isIdle(model, version) {
  const waits = version.version === model.candidate || model.ramps.some((moving) => moving.version === version.version);
  const settled = version.state === "ready" || version.state === "stopped";
  return settled && !waits && version.version !== model.baseline && version.traffic === 0 && version.shadow === 0;
}

export function versionsTable(model, color, state, say, redraw) {
  const lines = state.history.get(model.name) ?? new Map();
  const all = [...lines.values()].flat();
  const slo = Math.max(...model.versions.map((version) => version.slo_p99_ms ?? 0)) || null;
  const scales = {
    p99: scaleFor(all.map((point) => point[POINT.p99]), slo),
    seconds: span(all, state.spanSeconds),
  };
  const idle = model.versions.filter((version) => isIdle(model, version));
  const open = unfolded.has(model.name);
  const shown = open ? model.versions : model.versions.filter((version) => !idle.includes(version));
  return [
    h(
      "table",
      { class: "versions", role: "table", key: "versions" },
      h("caption", { class: "hidden" }, `Versions of ${model.name}`),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((column) => h("th", { role: "columnheader", scope: "col" }, column)))),
      h(
        "tbody",
        { role: "rowgroup" },
        shown.map((version) => versionRow(model, version, color, lines.get(String(version.version)) ?? [], scales, state, say)),
      ),
    ),
    idle.length ? foldButton(model, idle, open, redraw) : null,
  ];
}

function foldButton(model, idle, open, redraw) {
  const count = `${idle.length} version${idle.length > 1 ? "s" : ""} without traffic`;
  const toggle = () => {
    if (open) unfolded.delete(model.name);
    else unfolded.add(model.name);
    redraw();
  };
  return h(
    "button",
    { key: "idle", class: "fold idle", "aria-expanded": open ? "true" : "false", "aria-label": `${count} of ${model.name}`, onclick: toggle },
    `${count}: ${idle.map((version) => `${version.version} ${version.role === "rolled back" ? version.role : version.state}`).join(", ")}`,
  );
}

function versionRow(model, version, color, points, scales, state, say) {
  const verdict = state.guards[model.name]?.versions[version.version];
  const live = state.live[model.name]?.[version.version];
  const cell = (column, ...content) => {
    const empty = content.every((part) => part === null || part === NONE);
    return h("td", { role: "cell", "data-label": COLUMNS[column], class: empty ? "none" : null }, content);
  };
  const drawn = points.some((point) => point[POINT.rate] > 0);
  return h(
    "tr",
    { role: "row", key: version.version, class: GONE.has(version.state) ? "gone" : null },
    h(
      "th",
      { role: "rowheader", scope: "row" },
      h("span", { class: `swatch c${color.get(version.version)}`, "aria-hidden": "true" }),
      `${version.version} `,
      version.role ? h("span", { class: "role" }, version.role) : null,
      version.labels.map((label) => h("span", { class: "badge", key: label }, label)),
      details(version),
    ),
    cell(1, h("span", { class: `state ${version.state}` }, version.state), version.reason ? h("p", { class: "reason" }, version.reason) : null, live ? liveView(model, version, live, say) : null),
    cell(2, percent(version.traffic), version.shadow > 0 ? h("p", { class: "muted" }, `${percent(version.shadow)} mirrored`) : null),
    cell(3, drawn ? rateChart(points, scales) : NONE),
    cell(4, drawn ? latencyChart(points, scales, version.slo_p99_ms) : NONE, drawn || version.slo_p99_ms === null ? null : h("p", { class: "muted" }, `SLO ${milliseconds(version.slo_p99_ms)}`)),
    cell(5, percent(verdict?.error_percent)),
    cell(6, verdict ? guardView(verdict) : NONE),
    cell(7, versionButtons(model, version, say)),
  );
}

const legend = (kind, name, value) => h("span", { class: `key ${kind}` }, `${name} `, h("b", {}, value));

function rateChart(points, { seconds }) {
  const top = scaleFor(points.map((point) => point[POINT.rate]));
  const rate = short(points.at(-1)[POINT.rate]);
  const label = `Requests per second, last ${duration(seconds)}, now ${rate}, scale to ${short(top)}`;
  return [h("span", { class: "now" }, h("span", {}, h("b", {}, rate), " /s")), chart({ points, seconds, lines: [["rate", POINT.rate]], top, unit: "/s", label })];
}

function latencyChart(points, { p99: top, seconds }, slo) {
  const now = points.at(-1);
  const [p50, p99] = [milliseconds(now[POINT.p50]), milliseconds(now[POINT.p99])];
  const most = Math.max(0, ...points.map((point) => point[POINT.p99] ?? 0));
  const label = `p50 and p99, last ${duration(seconds)}, now ${p50} and ${p99}, scale to ${milliseconds(top)}`;
  return [
    h(
      "span",
      { class: "now" },
      legend("p50", "p50", short(now[POINT.p50])),
      legend("p99", "p99", p99),
      slo === null ? null : legend("limit", "SLO", milliseconds(slo)),
      most > top ? h("span", { class: "muted" }, `peak ${milliseconds(most)}`) : null,
    ),
    chart({ points, seconds, lines: [["p50", POINT.p50], ["p99", POINT.p99]], top, unit: " ms", limit: slo, label }),
  ];
}

function liveView(model, version, live, say) {
  const facts = `${short(live.rows_per_s)} rows/s, ${bytes(live.overlay_bytes)} of changed rows`;
  const refused = `${short(live.refused)} refused`;
  return [
    h("p", { class: "epoch", key: "epoch" }, `epoch ${live.epoch}`, live.age_s === null ? null : `, ${age(live.age_s)} old `, live.held ? h("span", { class: "badge warn" }, "held") : null),
    live.held ? h("button", { key: "follow", "aria-label": `Let ${model.name}/${version.version} follow again`, onclick: () => followAgain(model, version, live, say) }, "Follow") : null,
    h("p", { class: "facts", key: "facts" }, live.refused && !live.error ? `${facts}, ${refused}` : facts),
    live.error ? h("details", { key: "error" }, h("summary", { class: "bad" }, refused), h("p", { class: "reason" }, live.error)) : null,
  ];
}

const WORDS = { ok: "within limits", wait: "close to a limit", bad: "outside limits", promote: "to be promoted" };

function guardView(verdict) {
  const few = verdict.ruling === "wait" && verdict.findings.length === 0;
  const words = few ? "too few requests" : WORDS[verdict.ruling];
  return h("details", {}, h("summary", { class: `ruling ${verdict.ruling}` }, words), h("p", { class: "reason" }, verdict.reason));
}

function details(version) {
  const lines = [
    ["Source", version.source],
    ["Since", clock(version.since)],
    ["Deployed", clock(version.deployed_at)],
    ["Size", version.bytes === null ? null : bytes(version.bytes)],
    ["SHA-256", version.sha256],
    ["Optimized", version.optimize],
    ...Object.entries(version.hosts).map(([name, host]) => [
      name,
      [host.state, host.cpuset ? `CPUs ${host.cpuset}` : null, host.precision, host.memory_bytes ? bytes(host.memory_bytes) : null, host.error]
        .filter(Boolean)
        .join(", "),
    ]),
  ].filter(([, value]) => value);
  return h(
    "details",
    {},
    h("summary", { "aria-label": `Details of version ${version.version}` }, "details"),
    h("dl", {}, lines.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  );
}

function versionButtons(model, version, say) {
  if (GONE.has(version.state) || version.version === model.baseline) return null;
  return h(
    "span",
    { class: "buttons" },
    h("button", { key: "promote", "aria-label": `Promote ${model.name}/${version.version}`, onclick: () => promote(model, version, say) }, "Promote"),
    h("button", { key: "ramp", "aria-label": `Ramp ${model.name}/${version.version}`, onclick: () => ramp(model, version, say) }, "Ramp…"),
  );
}
