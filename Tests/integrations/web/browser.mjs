// A browser without a window: runs the service worker of the page with the pushes on standard input, one JSON text a line, and prints
// after each what it shows: the notifications by their tags, and what was told to the open page.
import { readFileSync } from 'node:fs';
import { createContext, Script } from 'node:vm';
import { createInterface } from 'node:readline';

const listeners = {};
const shown = new Map();
let told = [];
let opened = [];
let now = Date.now();

class Notification {
  constructor(title, options) {
    // As the specification says: a silent notification must not vibrate.
    if (options.silent && options.vibrate !== undefined) throw new TypeError('silent and vibrate');
    if (options.renotify && !options.tag) throw new TypeError('renotify without a tag');
    Object.assign(this, { title, ...options, data: structuredClone(options.data ?? null) });
  }
  close() { shown.delete(this.tag); }
}

const registration = {
  showNotification: async (title, options = {}) => { shown.set(options.tag, new Notification(title, options)); },
  getNotifications: async ({ tag } = {}) => [...shown.values()].filter((one) => tag === undefined || one.tag === tag),
};
const clients = {
  // The page from which the user has just subscribed: the worker does not control it before it is loaded again.
  matchAll: async ({ includeUncontrolled = false } = {}) =>
    (includeUncontrolled ? [{ postMessage: (message) => told.push(message.type) }] : []),
  openWindow: async (path) => { opened.push(path); },
};
class FixedDate extends Date { static now() { return now; } }
const self = { registration, clients, addEventListener: (type, listener) => { listeners[type] = listener; } };
const fetched = async (path, { method }) => { opened.push(`${method} ${path}`); };
new Script(readFileSync(process.argv[2], 'utf8')).runInContext(createContext({ self, fetch: fetched, Date: FixedDate }));

async function dispatch(type, event) {
  const promises = [];
  listeners[type]({ ...event, waitUntil: (promise) => promises.push(promise) });
  if (!promises.length) throw new Error(`${type}: the worker may be stopped before it has done anything`);
  await Promise.all(promises);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { bytes, secondsLater = 0, click, close } = JSON.parse(line);
  [told, opened, now] = [[], [], Date.now() + secondsLater * 1000];
  if (close) {
    shown.get(close.tag).close();
  } else if (click) {
    await dispatch('notificationclick', { action: click.action, notification: shown.get(click.tag) });
  } else {
    const before = shown.size;
    let hasShown = false;
    const show = registration.showNotification;
    registration.showNotification = (...given) => { hasShown = true; return show(...given); };
    await dispatch('push', { data: { json: () => JSON.parse(bytes), text: () => bytes } });
    registration.showNotification = show;
    // userVisibleOnly
    if (!hasShown) throw new Error(`a push was not shown (${before})`);
  }
  const screen = [...shown.values()].map((one) => ({
    title: one.title, body: one.body, rings: one.requireInteraction, silent: one.silent, actions: one.actions?.map((a) => a.action) }));
  console.log(JSON.stringify({ screen, told, opened }));
}
