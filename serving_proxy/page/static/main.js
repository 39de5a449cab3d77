// SPDX-License-Identifier: Apache-2.0
// Follows the proxy, stores its state, and draws it at most once per frame.

import { ask, hasSession, logIn, logOut, Stream } from "./api.js";
import { question } from "./dialogs.js";
import { h, render } from "./dom.js";
import { eventsView, jobsView } from "./events.js";
import { experimentsView } from "./experiments.js";
import { clock } from "./format.js";
import { hostsView, machineView } from "./machine.js";
import { modelsView } from "./models.js";

const MOST_EVENTS = 1000;
const MOST_POINTS = 150;

const state = {
  status: null,
  guards: {},
  live: {},
  machine: { cpus: [], owners: [], cores: { mode: "off", pools: [], notes: [] } },
  history: new Map(),
  spanSeconds: 300,
  events: [],
  session: hasSession(),
  // `loading`, `up`, `down` or `refused`.
  connection: "loading",
  lostAt: null,
  nextAt: null,
  problem: null,
};
const place = (id) => document.getElementById(id);
let drawing = false;
let dialog = null;

function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw();
  });
}

function say(text) {
  place("said").textContent = text;
}

function draw() {
  render(place("top"), header());
  render(place("banners"), banners());
  document.body.classList.toggle("stale", state.connection === "down");
  if (state.status === null) {
    const waiting = state.connection === "refused" ? "Log in to see the models." : "Loading…";
    render(place("models"), h("h2", { id: "models-heading", tabindex: "-1" }, "Models"), h("p", { class: "muted" }, waiting));
    return;
  }
  render(place("models"), modelsView(state, say, redraw));
  render(place("experiments"), experimentsView(state));
  render(place("machine"), machineView(state));
  render(place("hosts"), hostsView(state));
  render(place("events"), eventsView(state, redraw));
  place("jobs").hidden = state.status.jobs.length === 0;
  if (!place("jobs").hidden) render(place("jobs"), jobsView(state, say));
  const wrong = faults();
  document.title = wrong ? `(${wrong}) serving-proxy` : "serving-proxy";
}

/** Return the number of problems that an operator should look at. */
function faults() {
  const failed = state.status.models.flatMap((model) => model.versions).filter((version) => version.state === "failed").length;
  const bad = Object.values(state.guards).flatMap((guard) => Object.values(guard.versions)).filter((verdict) => verdict.ruling === "bad").length;
  return failed + bad;
}

const CONNECTIONS = { loading: "connecting", up: "live", down: "not connected", refused: "locked" };

function header() {
  const { status } = state;
  return [
    h("h1", {}, "serving-proxy"),
    h("span", { class: `connection ${state.connection}` }, CONNECTIONS[state.connection]),
    status === null ? null : h("span", { class: "muted" }, `version ${status.version}, generation ${status.generation}, up since ${clock(status.started)}`),
    h(
      "nav",
      { "aria-label": "Sections" },
      [["models", "Models"], ["experiments", "Experiments"], ["machine", "Cores"], ["hosts", "Hosts"], ["events", "Events"]].map(([id, text]) =>
        h("a", { href: `#${id}-heading`, key: id }, text),
      ),
    ),
    state.session ? h("button", { key: "leave", onclick: leave }, "Log out") : null,
  ];
}

function banners() {
  const found = [];
  if (state.connection === "down") {
    const seen = state.status === null ? "" : " The data below are from that time. The hosts keep serving requests.";
    found.push(
      h(
        "p",
        { class: "banner bad", key: "down" },
        `No connection to the proxy since ${clock(state.lostAt)}.${seen} `,
        h("button", { onclick: () => stream.retry() }, "Try now"),
      ),
    );
  }
  if (state.connection === "refused") {
    found.push(
      h(
        "p",
        { class: "banner bad", key: "refused" },
        `${state.problem} `,
        state.needsToken ? h("button", { onclick: askForToken }, "Log in") : h("button", { onclick: () => stream.retry() }, "Try now"),
      ),
    );
  }
  if (state.status?.fault) found.push(h("p", { class: "banner bad", key: "fault" }, `The state directory cannot be written to: ${state.status.fault}`));
  if (state.status?.draining) found.push(h("p", { class: "banner", key: "draining" }, "The hosts are draining: they finish their requests and stop."));
  return found;
}

async function leave() {
  try {
    await logOut();
  } catch {
    // The session expires on its own, and its key is forgotten here.
  }
  location.reload();
}

function askForToken() {
  if (dialog !== null) return;
  dialog = question({
    title: "Log in to this proxy",
    lines: ["The token is the content of admin.token in the state directory of the proxy, or of its --token-file. The login expires after 12 hours."],
    fields: [{ name: "token", label: "Token", type: "password", check: (text) => (/^[\x21-\x7e]+$/.test(text) ? null : "Token: expected one word") }],
    verb: "Log in",
    act: async ({ token }) => {
      try {
        await logIn(token);
      } catch (error) {
        throw error.code === 401 ? new Error("That is not the token of this proxy.") : error;
      }
      state.session = true;
      stream.retry();
    },
    onClose: () => {
      dialog = null;
    },
  });
}

function addPoint(model, version, point) {
  if (!state.history.has(model)) state.history.set(model, new Map());
  const lines = state.history.get(model);
  const points = lines.get(version) ?? [];
  if (points.length && points.at(-1)[0] >= point[0]) return;
  lines.set(version, [...points, point].slice(-MOST_POINTS));
}

function addEvents(events) {
  const last = state.events.at(-1)?.id ?? 0;
  state.events = [...state.events, ...events.filter((event) => event.id > last)].slice(-MOST_EVENTS);
}

const listener = {
  async up() {
    const [events, history] = await Promise.all([ask("GET", "/v1/events?limit=200"), ask("GET", "/v1/history")]);
    addEvents(events);
    if (stream.lastEvent === null) stream.lastEvent = events.at(-1)?.id ?? null;
    state.spanSeconds = MOST_POINTS * history.period_s;
    state.history = new Map();
    for (const [model, versions] of Object.entries(history.models)) {
      for (const [version, points] of Object.entries(versions)) {
        points.forEach((point) => addPoint(model, version, point));
      }
    }
    state.connection = "up";
    redraw();
  },
  message(kind, data) {
    if (kind === "status") state.status = data;
    if (kind === "event") {
      addEvents([data]);
      if (data.kind === "guard" && data.data.ruling === "bad") say(data.message);
    }
    if (kind === "watch") {
      state.guards = data.guards;
      state.live = data.live;
      state.machine = data.machine;
      for (const [model, versions] of Object.entries(data.points)) {
        for (const [version, point] of Object.entries(versions)) addPoint(model, version, point);
      }
    }
    redraw();
  },
  down() {
    if (state.connection !== "down") state.lostAt = Date.now() / 1000;
    state.connection = "down";
    redraw();
  },
  refused(error) {
    state.connection = "refused";
    state.needsToken = error.code === 401;
    state.problem = state.needsToken ? "You are not logged in." : error.message;
    redraw();
    if (state.needsToken) askForToken();
  },
};

const stream = new Stream(["events", "status", "watch"], listener);
// A laptop that wakes up reconnects at once.
addEventListener("online", () => stream.retry());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && state.connection === "down") stream.retry();
});
draw();
stream.run();
