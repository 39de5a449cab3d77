// SPDX-License-Identifier: Apache-2.0
// The admin API: requests of a session, and its stream, which reconnects automatically.

// Scripts cannot read the session's cookie; requests need this key in addition. The token itself is not stored.
const KEY = "serving-proxy-key";
// The server sends something every fifteen seconds; after this time without data, the connection is dead.
const SILENCE_MS = 25000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15000;

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const hasSession = () => localStorage.getItem(KEY) !== null;

/** Begin a session. */
export async function logIn(token) {
  const { key } = await ask("POST", "/v1/login", { token });
  localStorage.setItem(KEY, key);
}

/** End the session, in this browser and at the proxy. */
export async function logOut() {
  try {
    await ask("POST", "/v1/logout");
  } finally {
    localStorage.removeItem(KEY);
  }
}

function headers(more) {
  const key = localStorage.getItem(KEY);
  return key === null ? { ...more } : { "X-Session-Key": key, ...more };
}

async function failure(answer) {
  try {
    const { error } = await answer.json();
    return new ApiError(error.status, answer.status, error.message);
  } catch {
    return new ApiError("UNAVAILABLE", answer.status, `HTTP ${answer.status}, expected a response of the proxy`);
  }
}

/** Send a request; `body` is sent as JSON. */
export async function ask(method, path, body) {
  const options = { method, headers: headers(), cache: "no-store", signal: AbortSignal.timeout(30000) };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ApiError("UNAVAILABLE", 0, "the proxy does not respond");
  }
  if (!answer.ok) throw await failure(answer);
  const text = await answer.text();
  return text === "" ? null : parse(text);
}

/** Parse JSON; integers that JavaScript would round, such as versions in nanoseconds, are returned as text. */
export function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    const rounded = Number.isInteger(value) && !Number.isSafeInteger(value);
    return rounded && /^-?\d+$/.test(context?.source ?? "") ? context.source : value;
  });
}

/** Return the path of a model's verb. */
export const modelPath = (name, verb) => `/v1/models/${encodeURIComponent(name)}/${verb}`;

/**
 * Follow the stream without end. `listener` has `message(kind, data)`, `up()`, `down(error, pauseMs)`, and
 * `refused(error)`, after which nothing is tried until `retry` is called.
 */
export class Stream {
  constructor(topics, listener) {
    this.path = `/v1/stream?${topics.map((topic) => `topics=${topic}`).join("&")}`;
    this.listener = listener;
    this.lastEvent = null;
    this.failures = 0;
    this.wake = null;
  }

  /** Try at once, without the rest of the pause. */
  retry() {
    this.failures = 0;
    this.wake?.();
  }

  async run() {
    for (;;) {
      let error = null;
      try {
        await this.connect();
      } catch (found) {
        error = found;
      }
      if (error instanceof ApiError && (error.code === 401 || error.code === 403)) {
        this.listener.refused(error);
        await this.pause(null);
        continue;
      }
      const wait = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.failures);
      this.failures += 1;
      this.listener.down(error, wait);
      await this.pause(wait);
    }
  }

  pause(milliseconds) {
    return new Promise((resolve) => {
      const timer = milliseconds === null ? null : setTimeout(resolve, milliseconds);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async connect() {
    const abort = new AbortController();
    let timer = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const more = this.lastEvent === null ? {} : { "Last-Event-ID": String(this.lastEvent) };
      const answer = await fetch(this.path, { headers: headers(more), cache: "no-store", signal: abort.signal });
      if (!answer.ok) throw await failure(answer);
      await this.listener.up();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => abort.abort(), SILENCE_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        blocks.forEach((block) => this.take(block));
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }

  take(block) {
    let kind = "message";
    let data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("id: ")) this.lastEvent = Number(line.slice(4));
      if (line.startsWith("event: ")) kind = line.slice(7);
      if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    this.failures = 0;
    this.listener.message(kind, parse(data));
  }
}
