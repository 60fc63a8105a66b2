// Asking the gateway: once, and again and again.

const timeoutMs = 8_000;

/** The database that is shown: the page's address names it, ?database=NAME. Null: the first one. */
export const database = new URLSearchParams(location.search).get("database");

/** The path of a request to the database that is shown. */
export const ofDatabase = (path) =>
  database === null ? path : `${path}${path.includes("?") ? "&" : "?"}database=${encodeURIComponent(database)}`;

/** What the gateway refused, in its own words. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem?.detail ?? `the gateway answered ${status}`);
    this.status = status;
    this.problem = problem?.type?.split(":").at(-1) ?? "";
  }
}

/** JSON of a path. `body`: makes it a POST; `token`: of the session. */
export async function ask(path, { body, token } = {}) {
  const options = { signal: AbortSignal.timeout(timeoutMs), credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    options.headers = { "Content-Type": "application/json", ...(token ? { "X-CSRF-Token": token } : {}) };
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "the gateway did not answer in time" : "the gateway cannot be reached");
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Refusal(response.status, answer);
  if (answer === null) throw new Error("the answer was not understood");
  return answer;
}

/** Calls `round()` every two seconds: less often while the page is hidden, or while it throws; not while it is paused. */
export class Poll {
  #round;
  #timer;
  #isUnderWay = false;
  #isPaused = false;
  #failures = 0;

  constructor(round) {
    this.#round = round;
    document.addEventListener("visibilitychange", () => document.hidden || this.#isPaused || this.now());
    window.addEventListener("online", () => this.#isPaused || this.now());
  }

  get isPaused() {
    return this.#isPaused;
  }

  set isPaused(isPaused) {
    this.#isPaused = isPaused;
    if (isPaused) clearTimeout(this.#timer);
    else this.now();
  }

  async now() {
    if (this.#isUnderWay) return;
    clearTimeout(this.#timer);
    this.#isUnderWay = true;
    try {
      await this.#round();
      this.#failures = 0;
    } catch {
      this.#failures += 1;
    }
    this.#isUnderWay = false;
    if (this.#isPaused) return;
    this.#timer = setTimeout(() => this.now(), document.hidden ? 30_000 : Math.min(2_000 * 2 ** this.#failures, 15_000));
  }
}
