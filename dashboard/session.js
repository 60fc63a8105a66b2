// Logging in, and the dialogs that change something.

import { ask, ofDatabase, Refusal } from "./live.js";
import { byId, say } from "./dom.js";

/** `token`: null while nobody is logged in; `name`: who is; `mustLogIn`: nothing can be read before; `isKnown`: whether the gateway has said so. */
export const session = { canLogIn: false, canLogOut: false, mustLogIn: false, name: null, token: null, isKnown: false };
const nobody = { name: null, token: null };

let onChange = () => {};

function take(answer) {
  Object.assign(session, answer, { isKnown: true });
  byId("session").hidden = session.token ? !session.canLogOut : !session.canLogIn;
  say(byId("session"), session.token ? "Log out" : "Log in");
  say(byId("who"), session.name ?? "");
  onChange();
}

/** The gateway wants to know who looks: asks for a key, once. */
export function mustLogIn() {
  const wasLoggedIn = session.token !== null;
  if (wasLoggedIn) take(nobody);
  if (session.canLogIn && !document.querySelector("dialog[open]") && (wasLoggedIn || !byId("login").wasShown)) open(byId("login"));
  byId("login").wasShown = true;
}

/** Asks whether somebody is logged in. */
export const readSession = async () => take(await ask("/ui/session"));

/** Makes the buttons work; `changed()` is called whenever somebody logged in or out, or a lane was switched. */
export function startSession(changed) {
  onChange = changed;
  byId("session").addEventListener("click", async () => {
    if (!session.token) return open(byId("login"));
    try {
      take(await ask("/ui/session/end", { body: {}, token: session.token }));
    } catch (error) {
      if (error instanceof Refusal) take(nobody);
      else say(byId("said"), `Still logged in: ${error.message}.`);
    }
  });
  prepare(byId("login"), async (form) => take(await ask("/ui/session", { body: { key: form.elements.key.value } })));
  prepare(byId("switch"), async (form) => {
    const { app, provider, paused } = byId("switch").lane;
    try {
      const answer = await ask(ofDatabase("/ui/lanes"), { token: session.token, body: { app, provider, paused: !paused, note: form.elements.note.value } });
      say(byId("said"), answer.message);
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) take(nobody);
      throw error;
    }
    onChange();
  });
}

/** Asks whether a lane is to be paused, or to go on. */
export function confirmSwitch(lane) {
  const dialog = byId("switch");
  const verb = lane.paused ? "Resume" : "Pause";
  const button = dialog.querySelector("button[type=submit]");
  dialog.lane = lane;
  say(byId("switch-title"), `${verb} ${lane.app} / ${lane.provider}?`);
  say(dialog.querySelector(".what"), lane.paused
    ? "It sends again at once, what has been waiting first."
    : "Nothing more is sent over it until it is resumed: its calls wait, and expire at their deadlines.");
  say(button, `${verb} ${lane.app} / ${lane.provider}`);
  button.className = lane.paused ? "primary" : "danger";
  open(dialog);
}

function open(dialog) {
  dialog.querySelector("form").reset();
  say(dialog.querySelector(".fault"), "");
  dialog.showModal();
  dialog.querySelector("input:not([hidden])").focus();
}

/** Enter does it, Escape and Cancel do not; a refusal is shown where it was asked. */
function prepare(dialog, act) {
  const form = dialog.querySelector("form");
  dialog.querySelector("[value=cancel]").addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    try {
      await act(form);
      form.reset();
      dialog.close();
    } catch (error) {
      say(dialog.querySelector(".fault"), `${error.message[0].toUpperCase()}${error.message.slice(1)}.`);
    }
    button.disabled = false;
  });
}
