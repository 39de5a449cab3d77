// SPDX-License-Identifier: Apache-2.0
// The machine: the CPUs with their versions and load, and the hosts.

import { h } from "./dom.js";
import { percent, ranges } from "./format.js";
import { colors } from "./models.js";

export function machineView(state) {
  const { cpus, owners } = state.machine;
  const models = new Map(state.status.models.map((model) => [model.name, colors(model)]));
  const own = owners.filter((owner) => owner.own);
  const packages = [...new Set(cpus.map((cpu) => cpu.package))];
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
          cpus.filter((cpu) => cpu.package === number).map((cpu) => cpuView(cpu, own.filter((owner) => owner.cpus.includes(cpu.cpu)), models)),
        ),
      ),
    ),
    sharing(owners.filter((owner) => !owner.own), models),
    moving(owners),
    dividing(state.machine.cores),
  ];
}

function chip(owner, models) {
  const color = models.get(owner.model)?.get(owner.version) ?? 0;
  return h("li", { class: `chip c${color}`, key: `${owner.host}/${owner.model}/${owner.version}` }, `${owner.model}/${owner.version}`);
}

function cpuView(cpu, owners, models) {
  const names = owners.map((owner) => `${owner.model}/${owner.version}`).join(", ") || "shared";
  const busy = cpu.busy === null ? "" : `, ${Math.round(cpu.busy)} % busy`;
  return h(
    "li",
    { class: "cpu", key: cpu.cpu },
    h("span", { class: "hidden" }, `CPU ${cpu.cpu}, core ${cpu.core}${busy}: ${names}`),
    h("span", { class: "number", "aria-hidden": "true" }, String(cpu.cpu)),
    h("span", { class: "busy", "aria-hidden": "true" }, cpu.busy === null ? "" : percent(Math.round(cpu.busy))),
    h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: { width: `${cpu.busy ?? 0}%` } })),
    h("ul", { class: "chips", "aria-hidden": "true" }, owners.map((owner) => chip(owner, models))),
  );
}

function sharing(owners, models) {
  const groups = new Map();
  for (const owner of owners) {
    const key = `${owner.host}: CPUs ${ranges(owner.cpus)}`;
    groups.set(key, [...(groups.get(key) ?? []), owner]);
  }
  return [...groups].map(([key, found]) =>
    h("div", { class: "sharing", key }, h("span", {}, `Shared on ${key}`), h("ul", { class: "chips" }, found.map((owner) => chip(owner, models)))),
  );
}

function moving(owners) {
  const found = owners.filter((owner) => owner.wanted !== null);
  return found.map((owner) =>
    h("p", { class: "muted", key: `moving ${owner.host}/${owner.model}/${owner.version}` }, `${owner.model}/${owner.version} on ${owner.host} is moving from CPUs ${ranges(owner.cpus)} to ${ranges(owner.wanted)}.`),
  );
}

function dividing({ mode, pools, notes }) {
  if (mode === "off") return [];
  const said = pools.filter((pool) => pool.cpus.length).map((pool) =>
    h(
      "p",
      { class: "muted", key: `pool ${pool.name}` },
      `${pool.name}: CPUs ${ranges(pool.cpus)}, ${pool.demand.toFixed(1)} cores busy, ${pool.versions.length === 1 ? pool.versions[0] : `${pool.versions.length} versions`}${pool.reason ? `; ${pool.reason}` : ""}.`,
    ),
  );
  return [...said, ...notes.map((note) => h("p", { class: "muted", key: `note ${note}` }, note))];
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
          h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map((column) => h("th", { role: "columnheader", scope: "col" }, column)))),
          h(
            "tbody",
            { role: "rowgroup" },
            hosts.map((host) =>
              h(
                "tr",
                { role: "row", key: host.name },
                h("th", { role: "rowheader", scope: "row" }, host.name),
                cell(1, h("span", { class: `state ${host.alive && host.state !== "hung" ? host.state : "failed"}` }, host.alive ? host.state : "not running"), host.note ? h("p", { class: "reason" }, host.note) : null, host.desired_error ? h("p", { class: "reason bad" }, host.desired_error) : null),
                cell(2, Object.entries(host.endpoints).map(([name, place]) => h("div", { key: name }, `${name} ${place}`))),
                cell(3, host.cpus || "all"),
                cell(4, String(host.generation), host.alive && host.generation < generation ? h("span", { class: "muted" }, ` of ${generation}`) : null),
                cell(5, host.alive ? `${host.pid}, ${host.origin}` : "", host.restarts ? h("span", { class: "muted" }, ` ${host.restarts} restarts`) : null),
              ),
            ),
          ),
        )
      : h("p", { class: "muted", key: "none" }, "No host is running: nothing is served."),
  ];
}
