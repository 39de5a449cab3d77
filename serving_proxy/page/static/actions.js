// SPDX-License-Identifier: Apache-2.0
// The operator's actions on a model and its versions; each asks for confirmation first.

import { ask, modelPath } from "./api.js";
import { question } from "./dialogs.js";
import { parseDuration, percent } from "./format.js";

export function pause(model, say) {
  question({
    title: model.paused ? `Resume experiments of ${model.name}?` : `Pause experiments of ${model.name}?`,
    lines: [
      model.paused
        ? "The variants get their traffic again, and ramps continue."
        : `All requests go to the baseline ${model.baseline} at once. Shares and ramps are kept for later.`,
    ],
    verb: model.paused ? "Resume" : "Pause",
    act: async () => {
      await ask("POST", modelPath(model.name, "pause"), { paused: !model.paused });
      say(`${model.name}: ${model.paused ? "experiments resumed" : "paused"}`);
    },
  });
}

export function rollback(model, target, variants, say) {
  const losing = variants.map((variant) => `${variant.version} (${percent(variant.traffic)})`).join(", ");
  const lines = [
    target === model.baseline
      ? `All requests go to the baseline ${target}.`
      : `All requests go to version ${target}, which is loaded. ${model.baseline} stays loaded without traffic.`,
  ];
  if (losing) lines.push(`These versions lose their traffic: ${losing}.`);
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

export function followAgain(model, version, live, say) {
  question({
    title: `Let ${model.name}/${version.version} follow its timeline again?`,
    lines: [`It leaves epoch ${live.epoch} for the newest one, which is ${live.newest_epoch}.`],
    verb: "Follow",
    act: async () => {
      await ask("POST", modelPath(model.name, "resume"), { version: version.version });
      say(`${model.name}/${version.version}: follows the newest epoch again`);
    },
  });
}

export function promote(model, version, say) {
  const ready = version.state === "ready";
  question({
    title: `Promote ${model.name}/${version.version}?`,
    lines: [
      ready
        ? `It becomes the baseline at once, instead of ${model.baseline ?? "none"}.`
        : `It becomes the baseline as soon as it is ready; it is ${version.state}.`,
      model.baseline === null ? "" : `${model.baseline} stays loaded, so that a rollback can return to it.`,
    ].filter(Boolean),
    verb: "Promote",
    act: async () => {
      await ask("POST", modelPath(model.name, "promote"), { version: version.version });
      say(`${model.name}/${version.version}: ${ready ? "is the baseline" : "becomes the baseline once it is ready"}`);
    },
  });
}

export function ramp(model, version, say) {
  question({
    title: `Ramp ${model.name}/${version.version}`,
    lines: [`It gets ${percent(version.traffic)} of the requests now. With 0 % it loses its traffic.`],
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
        hint: "Such as 0, 30s, 15m, 1h or 2d. The time counts only while the version is ready and the model is not paused.",
        check: (text) => (parseDuration(text) >= 0 ? null : `Within: '${text}', expected a time such as 30s, 15m or 1h`),
      },
    ],
    verb: "Ramp",
    act: async ({ to, over }) => {
      const body = { version: version.version, to: Number(to), over_s: parseDuration(over) };
      await ask("POST", modelPath(model.name, "ramp"), body);
      say(`${model.name}/${version.version}: ramp to ${percent(Number(to))} started`);
    },
  });
}
