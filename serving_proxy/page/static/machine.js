// SPDX-License-Identifier: Apache-2.0
// The machine: the CPUs with their versions and load, and the hosts.

import { h } from "./dom.js";
import { percent, ranges } from "./format.js";
import { colors } from "./models.js";

export function machineView(state) {
  const { cpus, owners } = state.machine;
  const models = new Map(state.status.models.map((one) => [one.name, colors(one)]));
  const own = owners.filter((one) => one.own);
  const packages = [...new Set(cpus.map((one) => one.package))];
  return [
    h("h2", { id: "machine-heading" }, "Cores"),
    packages.map((number) =>
      h(
        "div",
        { key: number },
        packages.length > 1 ? h("h3", {}, `Package ${number}`) : null,
        h(
          "ul",
          { class: "cpus" },
          cpus.filter((one) => one.package === number).map((one) => cpuView(one, own.filter((two) => two.cpus.includes(one.cpu)), models)),
        ),
      ),
    ),
    sharing(owners.filter((one) => !one.own), models),
    moving(owners),
    dividing(state.machine.cores),
  ];
}

function chip(owner, models) {
  const color = models.get(owner.model)?.get(owner.version) ?? 0;
  return h("li", { class: `chip c${color}`, key: `${owner.host}/${owner.model}/${owner.version}` }, `${owner.model}/${owner.version}`);
}

function cpuView(cpu, owners, models) {
  const names = owners.map((one) => `${one.model}/${one.version}`).join(", ") || "nobody alone";
  const busy = cpu.busy === null ? "" : `, ${Math.round(cpu.busy)} % busy`;
  return h(
    "li",
    { class: "cpu", key: cpu.cpu },
    h("span", { class: "hidden" }, `CPU ${cpu.cpu}, core ${cpu.core}${busy}: ${names}`),
    h("span", { class: "number", "aria-hidden": "true" }, String(cpu.cpu)),
    h("span", { class: "busy", "aria-hidden": "true" }, cpu.busy === null ? "" : percent(Math.round(cpu.busy))),
    h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: `${cpu.busy ?? 0}%` } })),
    h("ul", { class: "chips", "aria-hidden": "true" }, owners.map((one) => chip(one, models))),
  );
}

function sharing(owners, models) {
  const groups = new Map();
  for (const one of owners) {
    const key = `${one.host}: CPUs ${ranges(one.cpus)}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups].map(([key, found]) =>
    h("div", { class: "sharing", key }, h("span", {}, `Shared on ${key}`), h("ul", { class: "chips" }, found.map((one) => chip(one, models)))),
  );
}

function moving(owners) {
  const found = owners.filter((one) => one.wanted !== null);
  return found.map((one) =>
    h("p", { class: "muted", key: `moving ${one.host}/${one.model}/${one.version}` }, `${one.model}/${one.version} on ${one.host} is to have CPUs ${ranges(one.wanted)} and has ${ranges(one.cpus)}.`),
  );
}

function dividing({ mode, pools, notes }) {
  if (mode === "off") return [];
  const said = pools.filter((one) => one.cpus.length).map((one) =>
    h(
      "p",
      { class: "muted", key: `pool ${one.name}` },
      `${one.name}: CPUs ${ranges(one.cpus)}, ${one.demand.toFixed(1)} cores busy, ${one.versions.length === 1 ? one.versions[0] : `${one.versions.length} versions`}${one.reason ? `; ${one.reason}` : ""}.`,
    ),
  );
  return [...said, ...notes.map((one) => h("p", { class: "muted", key: `note ${one}` }, one))];
}

const COLUMNS = ["Host", "State", "Endpoints", "CPUs", "Generation", "Process"];

export function hostsView(state) {
  const { hosts, generation } = state.status;
  const cell = (column, ...content) => h("td", { role: "cell", "data-label": COLUMNS[column] }, content);
  return [
    h("h2", { id: "hosts-heading" }, "Hosts"),
    hosts.length
      ? h(
          "table",
          { class: "wide", role: "table", key: "table" },
          h("caption", { class: "hidden" }, "Hosts"),
          h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((one) => h("th", { role: "columnheader", scope: "col" }, one)))),
          h(
            "tbody",
            { role: "rowgroup" },
            hosts.map((one) =>
              h(
                "tr",
                { role: "row", key: one.name },
                h("th", { role: "rowheader", scope: "row" }, one.name),
                cell(1, h("span", { class: `state ${one.alive && one.state !== "hung" ? one.state : "failed"}` }, one.alive ? one.state : "not running"), one.note ? h("p", { class: "reason" }, one.note) : null, one.desired_error ? h("p", { class: "reason bad" }, one.desired_error) : null),
                cell(2, Object.entries(one.endpoints).map(([name, place]) => h("div", { key: name }, `${name} ${place}`))),
                cell(3, one.cpus || "all"),
                cell(4, String(one.generation), one.alive && one.generation < generation ? h("span", { class: "muted" }, ` of ${generation}`) : null),
                cell(5, one.alive ? `${one.pid}, ${one.origin}` : "", one.restarts ? h("span", { class: "muted" }, ` ${one.restarts} restarts`) : null),
              ),
            ),
          ),
        )
      : h("p", { class: "muted", key: "none" }, "No host is running: nothing is served."),
  ];
}
