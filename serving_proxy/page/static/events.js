// SPDX-License-Identifier: Apache-2.0
// Events, the newest first, and running jobs.

import { ask } from "./api.js";
import { question } from "./dialogs.js";
import { h } from "./dom.js";
import { clock } from "./format.js";

const MOST_SHOWN = 200;
let chosen = "";

export function eventsView(state, redraw) {
  const names = [...new Set(state.events.map((one) => one.model).filter(Boolean))].sort();
  if (chosen && !names.includes(chosen)) chosen = "";
  const found = state.events.filter((one) => !chosen || one.model === chosen).slice(-MOST_SHOWN).reverse();
  return [
    h(
      "div",
      { class: "title" },
      h("h2", { id: "events-heading" }, "Events"),
      h(
        "label",
        {},
        "of ",
        h(
          "select",
          { onchange: (event) => { chosen = event.target.value; redraw(); } },
          h("option", { value: "" }, "all models"),
          names.map((name) => h("option", { value: name, key: name, selected: name === chosen }, name)),
        ),
      ),
    ),
    found.length
      ? h("ol", { class: "events", tabindex: "0", "aria-label": "Events, the newest first" }, found.map(eventView))
      : h("p", { class: "muted" }, "Nothing has happened yet."),
  ];
}

function eventView(event) {
  const bad = event.data.ruling === "bad" || event.data.to === "failed";
  return h(
    "li",
    { key: event.id, class: bad ? "bad" : null },
    h("time", { datetime: new Date(event.at * 1000).toISOString() }, clock(event.at)),
    h("span", { class: "badge" }, event.kind),
    h("span", { class: "message" }, event.message),
  );
}

export function jobsView(state, say) {
  const { jobs } = state.status;
  return [
    h("h2", { id: "jobs-heading" }, "Under way"),
    h(
      "ul",
      { class: "jobs" },
      jobs.map((one) =>
        h(
          "li",
          { key: one.id },
          h("span", { class: "message" }, `${one.kind} ${one.model}/${one.version}: ${one.step}`),
          one.total ? h("progress", { max: one.total, value: one.done, "aria-label": `${one.model}/${one.version}` }) : null,
          h("button", { "aria-label": `Cancel ${one.kind} of ${one.model}/${one.version}`, onclick: () => cancel(one, say) }, "Cancel"),
        ),
      ),
    ),
  ];
}

function cancel(job, say) {
  question({
    title: `Cancel the ${job.kind} of ${job.model}/${job.version}?`,
    lines: ["The version is taken out again; what serves now goes on serving."],
    verb: "Cancel it",
    danger: true,
    act: async () => {
      await ask("DELETE", `/v1/jobs/${job.id}`);
      say(`${job.model}/${job.version}: cancelled`);
    },
  });
}
