// Logging in, and the dialogs that change something.

import { ask, ofDatabase, Refusal } from "./live.js";
import { byId, say } from "./dom.js";

/** `token`: null while logged out; `name`: of the operator; `mustLogIn`: nothing can be read without a login; `isKnown`: whether the gateway has answered. */
export const session = { canLogIn: false, canLogOut: false, mustLogIn: false, name: null, token: null, isKnown: false };
const loggedOut = { name: null, token: null };

let onChange = () => {};

function take(answer) {
  Object.assign(session, answer, { isKnown: true });
  byId("session").hidden = session.token ? !session.canLogOut : !session.canLogIn;
  say(byId("session"), session.token ? "Log out" : "Log in");
  say(byId("who"), session.name ?? "");
  onChange();
}

/** The gateway requires a login: asks for a key, once. */
export function mustLogIn() {
  const wasLoggedIn = session.token !== null;
  if (wasLoggedIn) take(loggedOut);
  if (session.canLogIn && !document.querySelector("dialog[open]") && (wasLoggedIn || !byId("login").wasShown)) open(byId("login"));
  byId("login").wasShown = true;
}

/** Reads from the gateway whether an operator is logged in. */
export const readSession = async () => take(await ask("/ui/session"));

/** Makes the buttons work; `changed()` is called after each login, logout and intervention. */
export function startSession(changed) {
  onChange = changed;
  byId("session").addEventListener("click", async () => {
    if (!session.token) return open(byId("login"));
    try {
      take(await ask("/ui/session/end", { body: {}, token: session.token }));
    } catch (error) {
      if (error instanceof Refusal) take(loggedOut);
      else say(byId("said"), `Still logged in: ${error.message}.`);
    }
  });
  prepare(byId("login"), async (form) => take(await ask("/ui/session", { body: { key: form.elements.key.value } })));
  prepare(byId("switch"), async (form) => {
    const { path, body } = byId("switch").request;
    try {
      const answer = await ask(ofDatabase(path), { token: session.token, body: { ...body, note: form.elements.note.value } });
      say(byId("said"), answer.message);
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) take(loggedOut);
      throw error;
    }
    onChange();
  });
}

/** Asks for confirmation before a lane is paused or resumed. */
export function confirmSwitch({ app, provider, paused }) {
  confirm(`${paused ? "Resume" : "Pause"} ${app} / ${provider}`, paused
    ? "It sends again at once, what has been waiting first."
    : "Nothing more is sent over it until it is resumed: its calls wait, and expire at their deadlines.",
  !paused, { path: "/ui/lanes", body: { app, provider, paused: !paused } });
}

/** Asks for confirmation before a call is tried again (requeue) or ended (void). */
export function confirmCall({ app, callId }, action) {
  confirm(`${action === "requeue" ? "Try again" : "End"} ${callId} of ${app}`, action === "requeue"
    ? "Each device whose last invite failed gets another one, unless its token is known to be dead; invites that wait are sent now."
    : "Invites that are not sent yet are taken back, phones that may ring are told to stop, and nobody gets a missed call.",
  action === "void", { path: "/ui/calls", body: { app, callId, action } });
}

/** Asks for a note and a confirmation. `request`: what is sent then, with the note. */
function confirm(title, what, isDanger, request) {
  const dialog = byId("switch");
  const button = dialog.querySelector("button[type=submit]");
  dialog.request = request;
  say(byId("switch-title"), `${title}?`);
  say(dialog.querySelector(".what"), what);
  say(button, title);
  button.className = isDanger ? "danger" : "primary";
  open(dialog);
}

function open(dialog) {
  dialog.querySelector("form").reset();
  say(dialog.querySelector(".fault"), "");
  dialog.showModal();
  dialog.querySelector("input:not([hidden])").focus();
}

/** Enter submits the dialog, Escape and Cancel close it; an error is shown in the dialog. */
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
