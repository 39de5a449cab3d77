// SPDX-License-Identifier: Apache-2.0
// Events, the newest first, and running jobs.

import { ask } from "./api.js";
import { question } from "./dialogs.js";
import { h } from "./dom.js";
import { clock } from "./format.js";

const MOST_SHOWN = 200;
let chosen = "";

export function eventsView(state, redraw) {
  const names = [...new Set(state.events.map((event) => event.model).filter(Boolean))].sort();
  if (chosen && !names.includes(chosen)) chosen = "";
  const found = state.events.filter((event) => !chosen || event.model === chosen).slice(-MOST_SHOWN).reverse();
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
      : h("p", { class: "muted" }, "There are no events yet."),
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
    h("h2", { id: "jobs-heading" }, "Running jobs"),
    h(
      "ul",
      { class: "jobs" },
      jobs.map((job) =>
        h(
          "li",
          { key: job.id },
          h("span", { class: "message" }, `${job.kind} ${job.model}/${job.version}: ${job.step}`),
          job.total ? h("progress", { max: job.total, value: job.done, "aria-label": `${job.model}/${job.version}` }) : null,
          h("button", { "aria-label": `Cancel ${job.kind} of ${job.model}/${job.version}`, onclick: () => cancel(job, say) }, "Cancel"),
        ),
      ),
    ),
  ];
}

function cancel(job, say) {
  question({
    title: `Cancel the ${job.kind} of ${job.model}/${job.version}?`,
    lines: [
      job.kind === "profile"
        ? "The measurement ends; the version keeps serving, and cores are planned from its requests."
        : "The version is removed; the other versions keep serving.",
    ],
    verb: "Cancel it",
    danger: true,
    act: async () => {
      await ask("DELETE", `/v1/jobs/${job.id}`);
      say(`${job.model}/${job.version}: cancelled`);
    },
  });
}
