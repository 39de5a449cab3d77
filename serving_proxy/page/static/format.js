// SPDX-License-Identifier: Apache-2.0
// Numbers and times as text.

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "2-digit", day: "2-digit" });

export const NONE = "–";

/** Return a number with at most three digits, thousands as k and M. */
export function short(value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  return trim(value);
}

function trim(value) {
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

export const percent = (value) => (value === null || value === undefined ? NONE : `${short(value)} %`);
export const milliseconds = (value) => (value === null || value === undefined ? NONE : `${short(value)} ms`);

/** Return a time of day, with the date if it is not today. */
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const day = DAY.format(at);
  return day === DAY.format(new Date()) ? CLOCK.format(at) : `${day} ${CLOCK.format(at)}`;
}

/** Return a duration such as 45 s, 12 min or 3 h 5 min. */
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const rest = minutes % 60;
  return `${Math.floor(minutes / 60)} h${rest ? ` ${rest} min` : ""}`;
}

/** Return the age of something, to a tenth of a second if it is young. */
export const age = (seconds) => (seconds < 10 ? `${seconds.toFixed(1)} s` : duration(seconds));

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let value = count;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${trim(value)} ${units[at]}`;
}

/** Return 30, 30s, 15m, 1h or 1h30m in seconds; NaN for anything else. */
export function parseDuration(text) {
  const units = { "": 1, s: 1, m: 60, h: 3600, d: 86400 };
  if (!/^(\d+(\.\d+)?)$|^(\d+(\.\d+)?[smhd])+$/.test(text.trim())) return NaN;
  let sum = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)([smhd]?)/g)) sum += Number(number) * units[unit];
  return sum;
}

/** Return a list of numbers in the form 0–3, 8. */
export function ranges(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([low, high]) => (low === high ? `${low}` : `${low}–${high}`)).join(", ");
}
