// SPDX-License-Identifier: Apache-2.0
// Models: a card each, with the split of its requests; cards of idle models are folded.

import { pause, rollback } from "./actions.js";
import { h } from "./dom.js";
import { duration, milliseconds, percent, short } from "./format.js";
import { POINT, versionsTable } from "./versions.js";

// With more models than this, only cards of models with a problem or a change in progress are open.
const MOST_OPEN = 8;
const chosen = new Map();
let wanted = "";

/** Return colors by version: the baseline has the first, others the next ones by their number. */
export function colors(model) {
  const others = model.versions.map((version) => version.version).filter((number) => number !== model.baseline);
  const found = new Map([[model.baseline, 0]]);
  others.forEach((number, index) => found.set(number, 1 + (index % 6)));
  return found;
}

export function modelsView(state, say, redraw) {
  const { models } = state.status;
  const shown = models.filter((model) => model.name.toLowerCase().includes(wanted.toLowerCase()));
  return [
    h(
      "div",
      { class: "title" },
      h("h2", { id: "models-heading", tabindex: "-1" }, "Models"),
      models.length > MOST_OPEN ? finder(models, shown, redraw) : null,
    ),
    models.length ? shown.map((model) => modelView(model, state, say, redraw)) : empty(),
  ];
}

function finder(models, shown, redraw) {
  const find = (event) => {
    wanted = event.target.value.trim();
    redraw();
  };
  return [
    h("input", { key: "find", type: "search", "aria-label": "Find a model", placeholder: "Find a model", oninput: find }),
    h("span", { class: "muted", key: "count" }, shown.length === models.length ? `${models.length} models` : `${shown.length} of ${models.length} models`),
  ];
}

/** Return the command to type for this proxy. */
function empty() {
  const server = location.origin === "http://127.0.0.1:8502" ? "" : ` --server ${location.origin}`;
  return h(
    "div",
    { class: "empty", key: "empty" },
    h("p", {}, "No model is deployed yet. To deploy one, run:"),
    h("pre", { tabindex: "0" }, h("code", {}, `serving-proxy deploy NAME /path/to/saved_model --wait${server}`)),
    h("p", {}, "The first version of a model is its baseline; later versions get a share of the traffic with ", h("code", {}, "--traffic 10"), "."),
  );
}

/** Summarize a model's present state: its requests a second, its baseline's p99, and whether something is wrong. */
function summary(model, state) {
  const lines = state.history.get(model.name) ?? new Map();
  const rate = [...lines.values()].reduce((sum, points) => sum + (points.at(-1)?.[POINT.rate] ?? 0), 0);
  const asked = [...lines.values()].flat().some((point) => point[POINT.rate] > 0);
  const p99 = lines.get(String(model.baseline))?.at(-1)?.[POINT.p99] ?? null;
  const verdicts = state.guards[model.name]?.versions ?? {};
  const bad = [
    ...model.versions.filter((version) => version.state === "failed").map((version) => `${version.version} failed`),
    ...Object.entries(verdicts).filter(([, verdict]) => verdict.ruling === "bad").map(([version]) => `${version} outside limits`),
  ];
  const changing = model.candidate !== null || model.versions.some((version) => !["ready", "stopped", "failed"].includes(version.state));
  const quiet = model.versions.every((version) => version.since < Date.now() / 1000 - state.spanSeconds);
  return { rate, p99, bad, changing, idle: !asked && quiet };
}

function isOpen(model, { bad, changing, idle }, count) {
  if (chosen.has(model.name)) return chosen.get(model.name);
  return bad.length > 0 || changing || (count <= MOST_OPEN && !idle);
}

function modelView(model, state, say, redraw) {
  const color = colors(model);
  const id = `model-${model.name}`;
  const found = summary(model, state);
  const open = isOpen(model, found, state.status.models.length);
  const toggle = () => {
    chosen.set(model.name, !open);
    redraw();
  };
  return h(
    "article",
    { class: open ? "model" : "model folded", key: model.name, "aria-labelledby": id },
    h(
      "div",
      { class: "title" },
      h("h3", { id }, h("button", { class: "fold", "aria-expanded": open ? "true" : "false", onclick: toggle }, model.name)),
      found.bad.map((text) => badge("bad", text)),
      model.paused ? badge("warn", "paused") : null,
      model.candidate === null ? null : badge("warm", `${model.candidate} becomes the baseline once it is ready`),
      model.policy ? badge("", `${model.policy} of ${model.base_path}`) : null,
      open ? null : traffic(model, color),
      h(
        "span",
        { class: "figures" },
        found.idle ? "no requests" : [h("b", {}, short(found.rate)), " requests/s"],
        found.p99 === null ? null : [", p99 ", h("b", {}, milliseconds(found.p99))],
      ),
      open ? h("span", { class: "buttons" }, modelButtons(model, say)) : null,
    ),
    open ? [traffic(model, color), model.ramps.map((moving) => rampView(model, moving)), versionsTable(model, color, state, say, redraw)] : null,
  );
}

const badge = (kind, text) => h("span", { class: `badge ${kind}`, key: text }, text);

function modelButtons(model, say) {
  const variants = model.versions.filter((version) => version.role === "variant");
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

function traffic(model, color) {
  const parts = model.versions.filter((version) => version.traffic > 0);
  const text = parts.map((version) => `version ${version.version} ${percent(version.traffic)}`).join(", ");
  return h(
    "div",
    { class: "traffic", key: "traffic", role: "img", "aria-label": `Traffic: ${text || "none"}` },
    parts.map((version) =>
      h(
        "span",
        { key: version.version, class: `share c${color.get(version.version)}`, style: { "flex-grow": version.traffic } },
        h("b", {}, String(version.version)),
        ` ${percent(version.traffic)}`,
      ),
    ),
  );
}

function rampView(model, moving) {
  const left = duration(moving.seconds - moving.elapsed);
  const stands = model.paused || model.versions.find((version) => version.version === moving.version)?.state !== "ready";
  return h(
    "p",
    { class: "ramp", key: `ramp-${moving.version}` },
    `Version ${moving.version} moves from ${percent(moving.start)} to ${percent(moving.to)}, ${left} left${stands ? "; the ramp is suspended" : ""}. `,
    h("progress", { max: moving.seconds, value: moving.elapsed, "aria-label": `Ramp of version ${moving.version}` }),
  );
}
