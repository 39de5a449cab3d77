// SPDX-License-Identifier: Apache-2.0
// Models: who gets which requests, how their versions do, and the verbs.

import { ask, modelPath } from "./api.js";
import { ceiling, sparkline } from "./charts.js";
import { question } from "./dialogs.js";
import { h } from "./dom.js";
import { bytes, clock, duration, milliseconds, NONE, parseDuration, percent, short } from "./format.js";

const GONE = new Set(["failed", "draining", "stopped"]);

/** Colours by version: the baseline has the first, others the next ones by their number. */
export function colours(model) {
  const others = model.versions.map((one) => one.version).filter((one) => one !== model.baseline);
  const found = new Map([[model.baseline, 0]]);
  others.forEach((one, index) => found.set(one, 1 + (index % 6)));
  return found;
}

export function modelsView(state, say) {
  const { models } = state.status;
  return [
    h("h2", { id: "models-heading", tabindex: "-1" }, "Models"),
    models.length ? models.map((one) => modelView(one, state, say)) : empty(state),
  ];
}

/** Say what to type, as it has to be typed for this proxy. */
function empty(state) {
  const server = location.origin === "http://127.0.0.1:8502" ? "" : ` --server ${location.origin}`;
  const token = state.token ? " --token-file FILE" : "";
  return h(
    "div",
    { class: "empty", key: "empty" },
    h("p", {}, "Nothing is deployed. In a terminal, type:"),
    h("pre", { tabindex: "0" }, h("code", {}, `serving-proxy deploy NAME /path/to/saved_model --wait${server}${token}`)),
    h("p", {}, "The first version of a model is its baseline; the next ones get a share with ", h("code", {}, "--traffic 10"), "."),
  );
}

function modelView(model, state, say) {
  const colour = colours(model);
  const id = `model-${model.name}`;
  const candidate = model.candidate === null ? null : badge("warm", `${model.candidate} is to be the baseline`);
  return h(
    "article",
    { class: "model", key: model.name, "aria-labelledby": id },
    h(
      "div",
      { class: "title" },
      h("h3", { id }, model.name),
      model.paused ? badge("warn", "paused") : null,
      candidate,
      model.policy ? badge("", `${model.policy} of ${model.base_path}`) : null,
      h("span", { class: "buttons" }, modelButtons(model, say)),
    ),
    traffic(model, colour),
    model.ramps.map((ramp) => rampView(model, ramp)),
    versionsTable(model, colour, state, say),
  );
}

const badge = (kind, text) => h("span", { class: `badge ${kind}` }, text);

function modelButtons(model, say) {
  const variants = model.versions.filter((one) => one.role === "variant");
  const back = model.last_good !== null && model.last_good !== model.baseline;
  const canRoll = back || variants.length > 0 || model.ramps.length > 0 || model.candidate !== null;
  const target = back ? model.last_good : model.baseline;
  return [
    h(
      "button",
      {
        key: "pause",
        "aria-label": `${model.paused ? "Resume" : "Pause"} experiments of ${model.name}`,
        onclick: () => pause(model, say),
      },
      model.paused ? "Resume" : "Pause",
    ),
    h(
      "button",
      {
        key: "rollback",
        class: "danger",
        disabled: !canRoll,
        "aria-label": `Roll back ${model.name}`,
        onclick: () => rollback(model, target, variants, say),
      },
      "Roll back",
    ),
  ];
}

function pause(model, say) {
  question({
    title: model.paused ? `Resume experiments of ${model.name}?` : `Pause experiments of ${model.name}?`,
    lines: [
      model.paused
        ? "Variants get their shares again, and ramps go on where they stood."
        : `All requests go to the baseline ${model.baseline}, at once. Shares and ramps wait as they are.`,
    ],
    verb: model.paused ? "Resume" : "Pause",
    act: async () => {
      await ask("POST", modelPath(model.name, "pause"), { paused: !model.paused });
      say(`${model.name}: ${model.paused ? "experiments go on" : "paused"}`);
    },
  });
}

function rollback(model, target, variants, say) {
  const losing = variants.map((one) => `${one.version} (${percent(one.traffic)})`).join(", ");
  const lines = [
    target === model.baseline
      ? `All requests go to the baseline ${target}.`
      : `All requests go to version ${target}, which is warm. ${model.baseline} stays loaded without traffic.`,
  ];
  if (losing) lines.push(`Without traffic from then on: ${losing}.`);
  question({
    title: `Roll back ${model.name} to ${target}?`,
    lines,
    verb: "Roll back",
    danger: true,
    act: async () => {
      await ask("POST", modelPath(model.name, "rollback"));
      say(`${model.name}: back to ${target}`);
    },
  });
}

function promote(model, version, say) {
  const ready = version.state === "ready";
  question({
    title: `Promote ${model.name}/${version.version}?`,
    lines: [
      ready
        ? `It becomes the baseline at once, in place of ${model.baseline ?? "none"}.`
        : `It becomes the baseline as soon as it is ready; it is ${version.state}.`,
      model.baseline === null ? "" : `${model.baseline} stays warm: a roll-back returns to it.`,
    ].filter(Boolean),
    verb: "Promote",
    act: async () => {
      await ask("POST", modelPath(model.name, "promote"), { version: version.version });
      say(`${model.name}/${version.version}: ${ready ? "is the baseline" : "to be promoted"}`);
    },
  });
}

function ramp(model, version, say) {
  question({
    title: `Ramp ${model.name}/${version.version}`,
    lines: [`It has ${percent(version.traffic)} of the requests now. 0 % takes it out.`],
    fields: [
      {
        name: "to",
        label: "Share at the end, in percent",
        value: String(Math.min(100, version.traffic < 10 ? 10 : 2 * Math.round(version.traffic))),
        mode: "decimal",
        check: (text) => (text !== "" && Number(text) >= 0 && Number(text) <= 100 ? null : `Share: '${text}', expected 0 to 100`),
      },
      {
        name: "over",
        label: "Within",
        value: "1h",
        hint: "0, 30s, 15m, 1h, 2d; the clock runs while it is ready and not paused",
        check: (text) => (parseDuration(text) >= 0 ? null : `Within: '${text}', expected a time such as 30s, 15m or 1h`),
      },
    ],
    verb: "Ramp",
    act: async ({ to, over }) => {
      const body = { version: version.version, to: Number(to), over_s: parseDuration(over) };
      await ask("POST", modelPath(model.name, "ramp"), body);
      say(`${model.name}/${version.version}: on its way to ${percent(Number(to))}`);
    },
  });
}

function traffic(model, colour) {
  const parts = model.versions.filter((one) => one.traffic > 0);
  const text = parts.map((one) => `version ${one.version} ${percent(one.traffic)}`).join(", ");
  return h(
    "div",
    { class: "traffic", role: "img", "aria-label": `Traffic: ${text || "none"}` },
    parts.map((one) =>
      h(
        "span",
        { key: one.version, class: `share c${colour.get(one.version)}`, style: { "flex-grow": one.traffic } },
        h("b", {}, String(one.version)),
        ` ${percent(one.traffic)}`,
      ),
    ),
  );
}

function rampView(model, one) {
  const left = duration(one.seconds - one.elapsed);
  const stands = model.paused || model.versions.find((two) => two.version === one.version)?.state !== "ready";
  return h(
    "p",
    { class: "ramp", key: `ramp-${one.version}` },
    `Version ${one.version} moves from ${percent(one.start)} to ${percent(one.to)}, ${left} to go${stands ? "; its clock stands still" : ""}. `,
    h("progress", { max: one.seconds, value: one.elapsed, "aria-label": `Ramp of version ${one.version}` }),
  );
}

const COLUMNS = ["Version", "State", "Share", "Requests/s", "p50 / p99", "Errors", "Guard", "Actions"];
const LEAST_SECONDS = 60;

/** Say over which time lines are drawn: what there is, but so long at least that two points are no curve. */
function span(points, most) {
  const times = points.map((one) => one[0]);
  return times.length ? Math.min(most, Math.max(LEAST_SECONDS, Math.max(...times) - Math.min(...times))) : LEAST_SECONDS;
}

function heading(column, top) {
  if (!top.drawn) return column;
  if (column === "Requests/s") return [column, h("span", { class: "scale" }, ` to ${short(top.rate)}`)];
  if (column !== "p50 / p99") return column;
  const scale = h("span", { class: "scale" }, ` to ${milliseconds(top.p99)}`);
  return [h("span", { class: "p50" }, "p50"), " / ", h("span", { class: "p99" }, "p99"), scale];
}

function versionsTable(model, colour, state, say) {
  const lines = state.history.get(model.name) ?? new Map();
  const all = [...lines.values()].flat();
  const top = {
    rate: ceiling(Math.max(0, ...all.map((one) => one[1]))),
    p99: ceiling(Math.max(0, ...all.map((one) => one[4] ?? 0))),
    seconds: span(all, state.spanSeconds),
    drawn: all.some((one) => one[1] > 0),
  };
  return h(
    "table",
    { class: "versions", role: "table" },
    h("caption", { class: "hidden" }, `Versions of ${model.name}`),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((one) => h("th", { role: "columnheader", scope: "col" }, heading(one, top))))),
    h(
      "tbody",
      { role: "rowgroup" },
      model.versions.map((one) => versionRow(model, one, colour, lines.get(String(one.version)) ?? [], top, state, say)),
    ),
  );
}

function versionRow(model, one, colour, points, top, state, say) {
  const verdict = state.guards[model.name]?.versions[one.version];
  const now = points.at(-1) ?? [0, null, null, null, null];
  const { seconds } = top;
  const cell = (column, ...content) => {
    const empty = content.every((part) => part === null || part === NONE);
    return h("td", { role: "cell", "data-label": COLUMNS[column], class: empty ? "none" : null }, content);
  };
  const drawn = points.some((point) => point[1] > 0);
  return h(
    "tr",
    { role: "row", key: one.version, class: GONE.has(one.state) ? "gone" : null },
    h(
      "th",
      { role: "rowheader", scope: "row" },
      h("span", { class: `swatch c${colour.get(one.version)}`, "aria-hidden": "true" }),
      `${one.version} `,
      one.role ? h("span", { class: "role" }, one.role) : null,
      one.labels.map((label) => h("span", { class: "badge", key: label }, label)),
      details(one),
    ),
    cell(1, h("span", { class: `state ${one.state}` }, one.state), one.reason ? h("p", { class: "reason" }, one.reason) : null),
    cell(2, percent(one.traffic), one.shadow > 0 ? h("p", { class: "muted" }, `shadow ${percent(one.shadow)}`) : null),
    cell(
      3,
      h("span", { class: "now" }, short(now[1])),
      drawn
        ? sparkline({ points, seconds, lines: [["rate", 1]], top: top.rate, label: `Requests per second, last ${duration(seconds)}, now ${short(now[1])}, scale to ${short(top.rate)}` })
        : null,
    ),
    cell(
      4,
      now[3] === null ? NONE : h("span", { class: "now" }, `${short(now[3])} / ${milliseconds(now[4])}`),
      drawn
        ? sparkline({ points, seconds, lines: [["p50", 3], ["p99", 4]], top: top.p99, limit: one.slo_p99_ms, label: `p50 and p99, last ${duration(seconds)}, now ${milliseconds(now[3])} and ${milliseconds(now[4])}, scale to ${milliseconds(top.p99)}` })
        : null,
      one.slo_p99_ms !== null ? h("p", { class: "muted" }, `objective ${milliseconds(one.slo_p99_ms)}`) : null,
    ),
    cell(5, percent(verdict?.error_percent)),
    cell(6, verdict ? guardView(verdict) : NONE),
    cell(7, versionButtons(model, one, say)),
  );
}

const WORDS = { ok: "within limits", wait: "close to a limit", bad: "outside limits", promote: "to be promoted" };

function guardView(verdict) {
  const few = verdict.ruling === "wait" && verdict.findings.length === 0;
  const words = few ? "too few requests" : WORDS[verdict.ruling];
  return h("details", {}, h("summary", { class: `ruling ${verdict.ruling}` }, words), h("p", { class: "reason" }, verdict.reason));
}

function details(one) {
  const lines = [
    ["Source", one.source],
    ["Since", clock(one.since)],
    ["Deployed", clock(one.deployed_at)],
    ["Size", one.bytes === null ? null : bytes(one.bytes)],
    ["SHA-256", one.sha256],
    ["Optimized", one.optimize],
    ...Object.entries(one.hosts).map(([name, host]) => [
      name,
      [host.state, host.cpuset ? `CPUs ${host.cpuset}` : null, host.precision, host.memory_bytes ? bytes(host.memory_bytes) : null, host.error]
        .filter(Boolean)
        .join(", "),
    ]),
  ].filter(([, value]) => value);
  return h(
    "details",
    {},
    h("summary", { "aria-label": `Details of version ${one.version}` }, "details"),
    h("dl", {}, lines.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
  );
}

function versionButtons(model, one, say) {
  if (GONE.has(one.state) || one.version === model.baseline) return null;
  return h(
    "span",
    { class: "buttons" },
    h("button", { key: "promote", "aria-label": `Promote ${model.name}/${one.version}`, onclick: () => promote(model, one, say) }, "Promote"),
    h("button", { key: "ramp", "aria-label": `Ramp ${model.name}/${one.version}`, onclick: () => ramp(model, one, say) }, "Ramp…"),
  );
}
