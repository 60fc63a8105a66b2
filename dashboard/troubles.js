// What is wrong, the worst first: what the headline says, and which lanes come first.

import { count, length, readable } from "./dom.js";

const providerNames = { apns: "APNs", fcm: "FCM", expo: "Expo", webpush: "Web push" };
/** A channel as a name: apns, APNs; webpush/google, Web push, google. */
export const provider = (channel) => {
  const [kind, service] = channel.split("/");
  return [providerNames[kind] ?? kind, service].filter(Boolean).join(", ");
};

// The page of docs/operations for each check of push.health. Tests/site/run.py compares them.
const pages = {
  "replicas alive": "nothing-is-delivered", lanes: "a-provider-is-down", credentials: "credentials-fail", housekeeping: "housekeeping-is-overdue",
  claims: "back-up-and-restore", "oldest ready invite": "calls-ring-late", "ends that failed": "ends-that-failed", schema: "nothing-is-delivered",
  "calls past their deadline": "housekeeping-is-overdue", "partitions ahead": "housekeeping-is-overdue",
  "history without a partition": "history-without-a-partition", "receipts overdue": "receipts-overdue", "quarantined tokens": "tokens-vanish",
  webhooks: "a-webhooks-receiver-acknowledges-nothing", "API keys": "a-key-of-the-http-api-must-be-replaced", quotas: "an-app-has-used-up-its-quota",
  "lock table": "the-table-of-locks-fills", "other logins": "several-tenants-in-one-database", "oldest transaction": "vacuum-is-held-back",
  "prepared transactions": "vacuum-is-held-back", "transaction ids used": "vacuum-is-held-back", "notify queue": "vacuum-is-held-back",
  "replication slots": "vacuum-is-held-back", "synchronous standby": "database-failed-over",
  "put aside": "a-call-did-not-ring-for-one-user",
};
/** The page of operations for a check. */
export const pageOf = (item, value = "") => {
  if (item === "housekeeping" && value.startsWith("no row")) return "a-job-has-no-row";
  if (item !== "lanes" || /circuit open|trying again/.test(value)) return pages[item] ?? "shortcuts-and-the-daily-look";
  return value.includes("no connection") ? "requests-go-unanswered" : value.includes("throttled") ? "calls-ring-late" : "nothing-is-delivered";
};

// The page for what providers, and the gateway itself, say of a push that failed. Tests/HTTPSurfaceTests compares them with the tables of reasons.
const reasons = {
  "tokens-vanish": ["BadDeviceToken", "ExpiredToken", "Unregistered", "SENDER_ID_MISMATCH", "UNREGISTERED", "DeviceNotRegistered", "BadPath",
    "HTTP404", "HTTP410", "errno_102", "errno_103", "errno_105", "errno_106"],
  "credentials-fail": ["ExpiredProviderToken", "InvalidProviderToken", "MissingProviderToken", "UnrelatedKeyIdInToken",
    "BadEnvironmentKeyInToken", "BadEnvironmentKeyIdInToken", "BadCertificate", "BadCertificateEnvironment", "Forbidden",
    "THIRD_PARTY_AUTH_ERROR", "UNAUTHENTICATED", "PERMISSION_DENIED", "NOT_FOUND", "UNAUTHORIZED", "InvalidCredentials", "MismatchSenderId",
    "BadAuthorizationHeader", "BadJwtToken", "BadVapidPublicKey", "VapidPkHashMismatch", "errno_109", "HTTP401", "HTTP403"],
  "requests-go-unanswered": ["ConnectionLost", "NoConnection", "NotConnected", "NotSentInTime", "TimedOut"],
};
const pageOfReason = (reason) => Object.keys(reasons).find((page) => reasons[page].includes(reason)) ?? "a-provider-is-down";
export const pageLink = (page) => `/ui/operations/${page}.md`;
export const pageTitle = (page) => page[0].toUpperCase() + page.slice(1).replaceAll("-", " ");

// Lanes.

const owed = (lane) => lane.ready + lane.waiting + lane.claimed;
const outcomes = { dead: "refused", expired: "expired", delivered_late: "delivered late" };
const isServed = (lane) => lane.circuit !== null;

/** What stops a lane, or hinders it: [word, more, how bad that is], or null. `now`: in milliseconds since 1970. */
export function condition(lane, now) {
  if (lane.paused) return ["paused", isServed(lane) ? "" : ", and no replica serves it", owed(lane) ? "bad" : "warn"];
  if (lane.refused === "all") return ["credentials refused", "", "bad"];
  if (!isServed(lane)) return owed(lane) ? ["no replica serves it", "", "bad"] : null;
  if (lane.circuit === "open") return ["circuit open", "", "bad"];
  if (lane.throttledUntil > now) return ["throttled", ` for ${length(lane.throttledUntil - now)}`, "warn"];
  if (lane.capacity === 0) return ["no connection", "", "bad"];
  if (lane.circuit === "half_open") return ["trying again", "", "warn"];
  return lane.refused ? ["credentials: some refused", "", "warn"] : null;
}

/** What became of the invites of the last `minutes` of an app and provider, by their names. Each: {invites, failed, text, state, page}. */
export function recentByLane(recent, minutes) {
  const lanes = new Map();
  for (const row of recent) {
    const key = `${row.app} ${row.provider}`;
    const lane = lanes.get(key) ?? { app: row.app, provider: row.provider, invites: 0, failed: 0, worst: null };
    lane.invites += row.count;
    if (row.outcome !== "delivered") {
      lane.failed += row.count;
      if (!lane.worst || row.count > lane.worst.count) lane.worst = row;
    }
    lanes.set(key, lane);
  }
  for (const lane of lanes.values()) {
    const share = lane.failed / lane.invites;
    lane.state = share >= 0.2 && lane.failed > 2 ? "bad" : share >= 0.03 ? "warn" : "ok";
    if (!lane.worst) continue;
    const isOne = lane.worst.count === lane.failed;
    lane.page = pageOfReason(lane.worst.reason);
    lane.text = `${count(lane.failed)} of ${count(lane.invites)} ${isOne ? outcomes[lane.worst.outcome] : "failed"} in the last ${minutes} minutes`
      + (lane.worst.reason ? `, ${lane.worst.reason}${isOne ? "" : " and others"}` : "");
  }
  return lanes;
}

/** Invites that should have made progress, by the names of app and provider: {text, state, page}. */
function stuckByLane(stuck) {
  const lanes = new Map();
  for (const row of stuck.filter((row) => row.kind === "invite")) {
    const key = `${row.app} ${row.provider}`;
    const text = `${count(row.count)} ${row.count === 1 ? "invite" : "invites"} ${row.why}, ${length(row.leftMs)} left`;
    if (!lanes.has(key)) lanes.set(key, { text, state: "bad", page: "calls-ring-late" });
  }
  return lanes;
}

/** Each lane with its `condition`, what happens to its invites (`ills`: {text, state, page}) and its `state`, the worst first. */
export function rankLanes(state, now) {
  const recent = recentByLane(state.overview.recent, state.minutesRecent);
  const stuck = stuckByLane(state.overview.stuck);
  const rank = { bad: 0, warn: 1, ok: 2, idle: 3 };
  return state.overview.lanes.map((lane) => {
    const at = condition(lane, now);
    const key = `${lane.app} ${lane.provider}`;
    const ills = [stuck.get(key), recent.get(key)].filter((ill) => ill && ill.state !== "ok");
    const states = [at?.[2], ...ills.map((ill) => ill.state), isServed(lane) ? "ok" : "idle"].filter(Boolean);
    return { ...lane, condition: at, ills, state: states.sort((a, b) => rank[a] - rank[b])[0],
      weight: (recent.get(key)?.failed ?? 0) + owed(lane) };
  }).sort((a, b) => rank[a.state] - rank[b.state] || b.weight - a.weight || (a.app < b.app ? -1 : a.app > b.app ? 1 : 0)
    || (a.channel < b.channel ? -1 : 1));
}

function pageOfLane(lane) {
  if (lane.refusal) return "credentials-fail";
  if (lane.paused || !isServed(lane)) return "nothing-is-delivered";
  if (lane.condition?.[0] === "throttled") return "calls-ring-late";
  if (lane.condition?.[0] === "no connection") return "requests-go-unanswered";
  // What failed says why the circuit is open. Dead tokens open none.
  const ill = lane.condition ? lane.ills.find((one) => one.failed && one.page !== "tokens-vanish") : lane.ills[0];
  return ill?.page ?? "a-provider-is-down";
}

// Everything.

const stopsAll = new Set(["replicas alive", "claims", "schema"]);
const sentences = {
  "replicas alive": () => "Nothing is sent: no replica of the gateway is alive",
  "oldest ready invite": (value) => `Calls ring late: the oldest invite has been ready for ${value}`,
};

/**
 * What is wrong, the worst first: {state, text, page, app}. `lanes`: of rankLanes; `app`: only this app, and what concerns all.
 * A paused lane, for example: {state: "warn", text: "building17 FCM: paused", page: "nothing-is-delivered", app: "building17"}.
 */
export function troubles(state, lanes, app) {
  const { recent, minutesRecent } = state;
  const span = `in the last ${minutesRecent} minutes`;
  const found = [];
  const add = (bad, text, page, of) => found.push({ state: bad ? "bad" : "warn", text, page, app: of });
  // What stops everything comes first, then lanes, then what all calls have in common. Lanes say what the checks of them say.
  const health = state.overview.health.filter((item) => item.state === "bad" && item.item !== "lanes" && item.item !== "credentials");
  const addHealth = (item) => {
    const value = readable(item.value);
    add(true, sentences[item.item]?.(value) ?? `${item.item}: ${value}`, pageOf(item.item, item.value));
  };
  health.filter((item) => stopsAll.has(item.item)).forEach(addHealth);
  // The lanes of a provider's services share its invites.
  const said = new Set();
  for (const lane of lanes) {
    const ills = lane.ills.filter((ill) => !said.has(ill));
    if (!ills.length && !lane.condition) continue;
    ills.forEach((ill) => said.add(ill));
    const text = [lane.condition?.slice(0, 2).join(""), ...ills.map((ill) => ill.text)].filter(Boolean).join("; ");
    const name = `${lane.app} ${provider(lane.condition ? lane.channel : lane.provider)}`;
    // A refusal is a sentence that names the lane.
    add(lane.state === "bad", lane.refusal ?? `${name}: ${text}`, pageOfLane(lane), lane.app);
  }
  health.filter((item) => !stopsAll.has(item.item)).forEach(addHealth);
  if (recent.p99 > 5000) add(true, `Calls ring late: one in a hundred takes ${length(recent.p99)} or more ${span}`, "calls-ring-late");
  const [failed, share] = [recent.invites - recent.delivered, recent.invites ? recent.delivered / recent.invites : 1];
  if (share < 0.97 && !lanes.some((lane) => lane.ills.length)) {
    const isBad = share < 0.8 && failed > 2;
    add(isBad, `${isBad ? "Calls" : "Some calls"} fail: ${count(failed)} of ${count(recent.invites)} invites were not delivered in time ${span}`,
      "a-provider-is-down");
  }
  if (recent.p99 > 2000 && recent.p99 <= 5000) {
    add(false, `Some calls ring late: one in a hundred takes ${length(recent.p99)} or more ${span}`, "calls-ring-late");
  }
  const wanted = found.filter((trouble) => !app || !trouble.app || trouble.app === app);
  return [...wanted.filter((trouble) => trouble.state === "bad"), ...wanted.filter((trouble) => trouble.state === "warn")];
}
