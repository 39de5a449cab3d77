// SPDX-License-Identifier: Apache-2.0
// Dialogs that ask the operator. Native dialogs keep the focus, close with Escape and then return the focus.

import { h, render } from "./dom.js";

function open(content, { onClose } = {}) {
  const dialog = document.createElement("dialog");
  document.body.append(dialog);
  const close = () => dialog.close();
  render(dialog, content(close));
  dialog.setAttribute("aria-labelledby", "dialog-title");
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose?.();
  });
  dialog.showModal();
  return dialog;
}

/**
 * Ask the operator, then run the action; if the proxy refuses it, the dialog shows the error.
 *
 * `fields` are [{name, label, value, hint, check}], `check` returns a message or null; `act` gets their values.
 */
export function question({ title, lines = [], fields = [], verb, danger = false, act, onClose }) {
  let problem = null;
  let busy = false;
  const view = (close) =>
    h(
      "form",
      { method: "dialog", onsubmit: (event) => submit(event, close), novalidate: true },
      h("h2", { id: "dialog-title" }, title),
      lines.map((line) => h("p", {}, line)),
      fields.map(field),
      h("p", { class: "problem", role: "alert" }, problem ?? ""),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", onclick: close }, "Cancel"),
        h("button", { type: "submit", class: danger ? "danger" : "main", disabled: busy }, verb),
      ),
    );
  const dialog = open(view, { onClose });
  const redraw = () => render(dialog, view(() => dialog.close()));

  async function submit(event, close) {
    event.preventDefault();
    if (busy) return;
    const values = {};
    for (const { name, check } of fields) {
      const input = dialog.querySelector(`#field-${name}`);
      values[name] = input.value.trim();
      problem = check?.(values[name]) ?? null;
      input.setAttribute("aria-invalid", problem === null ? "false" : "true");
      if (problem !== null) {
        redraw();
        input.focus();
        return;
      }
    }
    busy = true;
    problem = null;
    redraw();
    try {
      await act(values);
      close();
    } catch (error) {
      problem = error.message;
      busy = false;
      redraw();
    }
  }
  return dialog;
}

function field({ name, label, value = "", hint, type = "text", mode }) {
  return h(
    "div",
    { class: "field" },
    h("label", { for: `field-${name}` }, label),
    h("input", {
      id: `field-${name}`,
      type,
      value,
      inputmode: mode,
      autocomplete: "off",
      autocapitalize: "none",
      spellcheck: "false",
      autofocus: true,
      "aria-describedby": hint ? `hint-${name}` : null,
    }),
    hint ? h("small", { id: `hint-${name}` }, hint) : null,
  );
}
