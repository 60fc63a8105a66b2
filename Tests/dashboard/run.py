"""What somebody on call does with the dashboard, in headless Chromium; and the pictures for the README.

Every check prints a line; the last says how many passed and failed. Anything in the browser's console, any violation of
the content security policy and any script error fails it.
"""

import argparse
import base64
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

SECONDS_MAX = 60
PICTURE_BYTES_MAX = 200_000
results = {True: 0, False: 0}


def check(name, got, want=True):
    results[got == want] += 1
    print(f"ok - {name}" if got == want else f"not ok - {name}: got {got!r}, want {want!r}", flush=True)


class Page:
    def __init__(self, options):
        self.options = options
        chrome = webdriver.ChromeOptions()
        chrome.binary_location = "/usr/bin/chromium"
        for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
                         "--lang=en-US", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
            chrome.add_argument(argument)
        chrome.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=chrome, service=Service("/usr/bin/chromedriver"))
        # Violations are also events; they are kept where a reload does not lose them.
        self.command("Page.addScriptToEvaluateOnNewDocument", source="""
          addEventListener('securitypolicyviolation',
            (event) => console.error('CSP ' + event.violatedDirective + ' ' + event.blockedURI));""")
        self.logs = []

    def command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def show(self, width, height, scheme, scale=1):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                             {"name": "prefers-reduced-motion", "value": "reduce"}])

    def open(self, path="/"):
        self.driver.get(self.options.url + path)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def text(self, selector):
        """What can be read there; empty while there is nothing."""
        return self.script("return [...document.querySelectorAll(arguments[0])].filter((n) => n.checkVisibility()).map((n) => "
            "n.innerText).join('\\n')", selector)

    def until(self, what, condition):
        """Waits for a condition; a check of its own."""
        try:
            WebDriverWait(self.driver, SECONDS_MAX, 0.05, ignored_exceptions=[WebDriverException]).until(lambda _: condition())
            check(what, True)
            return True
        except WebDriverException:
            check(what, f"nothing like it: {self.text('main')[:600]!r}", True)
            return False

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def focus(self):
        return self.script("const n = document.activeElement; return n.dataset.key || n.id || n.name || n.tagName + (n.value ? ' ' + "
            "n.value : '')")

    def picture(self, name):
        data = self.command("Page.captureScreenshot", format="png")["data"]
        path = Path(self.options.pictures) / f"dashboard-{name}.png"
        path.write_bytes(base64.b64decode(data))
        check(f"the picture {name} has less than {PICTURE_BYTES_MAX} bytes", path.stat().st_size < PICTURE_BYTES_MAX)

    def quiet(self, what, expected=()):
        """Nothing is in the console but what was provoked."""
        entries = [e["message"] for e in self.driver.get_log("browser") if not any(word in e["message"] for word in expected)]
        check(f"the console is silent: {what}", entries, [])


def sql(options, statement):
    return subprocess.run([options.psql, "-XAtq", options.database, "-c", statement], check=True, capture_output=True,
        text=True).stdout.strip()


def sql_file(options, name):
    subprocess.run([options.psql, "-XAtq", "-v", "ON_ERROR_STOP=1", options.database, "-o", "/dev/null", "-f",
        Path(__file__).with_name(name)], check=True)


def overview(page):
    page.show(1280, 960, "light")
    page.open()
    page.until("the page says how calls are",
        lambda: page.text("#verdict-word") == "Calls are ringing" or page.text("#verdict-word").startswith("porteiro FCM: "))
    page.until("it is live", lambda: page.text("#live") == "live")
    check("three charts are drawn", page.script("return document.querySelectorAll('#charts svg .line, #charts svg rect').length > 30"))
    check("every lane is there", [w in page.text("#lanes") for w in ("APNs", "FCM", "Expo", "sends")], [True] * 4)
    check("the replica is there", "alive" in page.text("#replicas"))
    check("failures are told by reason", "UNREGISTERED" in page.text("#failures"))
    check("read-only: no lane has a button", page.text("#lanes button"), "")
    check("data from the database is no markup", page.script("return document.querySelectorAll('main img, main script').length"), 0)
    before = page.script("return performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/ui/state')).length")
    page.until("it asks again by itself",
        lambda: page.script("return performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/ui/state')).length") > before)
    elsewhere = page.script("return performance.getEntriesByType('resource').map((e) => e.name).filter((n) => "
        "!n.startsWith(location.origin))")
    check("nothing comes from anywhere else", elsewhere, [])
    page.quiet("overview")


def failed_call(page):
    """With the keyboard alone."""
    page.script("document.activeElement.blur()")
    page.keys("/")
    check("/ goes to the search", page.focus(), "query")
    page.keys("call-failed", Keys.ENTER)
    page.until("the failed call is found by its id", lambda: "UNREGISTERED" in page.text("#call"))
    check("its devices are there, masked",
        ["bruno" in page.text("#call"), "davi" in page.text("#call"), "brunos-old-phone" in page.text("#call")], [True, True, False])
    check("a device has a line in time", page.script("return document.querySelectorAll('#call .device svg .mark').length") >= 4)
    check("the step by step tells the fallback", "fallback" in page.text("#call table"))
    check("the address names the call", page.script("return location.hash"), "#call=call-failed")
    page.quiet("call")
    page.keys(Keys.ESCAPE)
    page.until("Escape goes back", lambda: page.text("#verdict-word") != "")
    page.keys(Keys.ARROW_DOWN)
    first = page.focus()
    page.keys(Keys.ARROW_DOWN)
    check("arrow keys go from row to row", [first.startswith("failure"), page.focus().startswith("failure"), first != page.focus()],
        [True] * 3)
    chosen = page.focus()
    page.keys(Keys.ENTER)
    page.until("Enter opens the example", lambda: page.script("return location.hash.startsWith('#call=')"))
    page.keys(Keys.ESCAPE)
    page.until("and Escape comes back to the same row", lambda: page.focus() == chosen)

    page.script("document.querySelector('.plot').focus()")
    page.keys(Keys.HOME, *[Keys.ARROW_RIGHT] * 5)
    first = "return document.querySelector('#charts .axis span').innerText"
    read = page.script(first)
    check("arrow keys read a chart", ["p50" in read, "min ago" in page.text("#charts .axis")], [True, True])
    page.script("document.querySelector('.plot').id = 'drawn-before'")
    sql(page.options, "insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, "
        "lane, kind, outcome, status, user_id, device) select now(), -1000000, now() - interval '50 ms', now(), now(), now(), 0, 1, "
        "min(id), 0, 0, 200, 'resident', 'demo…0000' from push.lane")
    page.until("and the same minute is read when it is drawn again",
        lambda: page.script("return document.getElementById('drawn-before')") is None and page.script(first) == read)
    check("which keeps the focus", page.focus(), "Enqueued to accepted")
    page.script("document.activeElement.blur()")
    page.open("/?again")
    page.keys(Keys.TAB)
    check("the first stop skips to the content", page.script("return document.activeElement.className"), "skip")


def hostile_call(page):
    page.open("/#call=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    page.until("a hostile id is shown as it is",
        lambda: "<script>alert(2)</script>" in page.text("#call") and "<img src=x onerror=alert(1)>" in page.text("#call-title"))
    check("and makes no element", page.script("return document.querySelectorAll('#call img, #call script').length"), 0)
    page.script("location.hash = '#call=nobody-knows'")
    page.until("an unknown id says so", lambda: "There is no call with this id" in page.text("#call"))
    page.quiet("hostile and unknown calls")


def log_in(page):
    page.open("/?login")
    page.until("there is a button to log in", lambda: page.text("#session") == "Log in")
    page.driver.find_element(By.ID, "session").click()
    page.keys("not the key", Keys.ENTER)
    page.until("a wrong key is refused", lambda: "not an ops key" in page.text("#login .fault"))
    page.quiet("a wrong key", expected=["403"])
    page.keys(Keys.ESCAPE)
    page.until("Escape closes the dialog", lambda: not page.script("return document.getElementById('login').open"))
    page.driver.find_element(By.ID, "session").click()
    page.keys(Path(page.options.key_file).read_text().strip(), Keys.ENTER)
    page.until("the right key logs in", lambda: page.text("#session") == "Log out")
    check("the page says who is logged in", page.text("#who"), "ops")
    cookies = page.driver.get_cookies()
    check("the cookie is kept from scripts and other sites", [(c["httpOnly"], c["sameSite"], c["path"]) for c in cookies],
        [(True, "Strict", "/")])
    check("no script sees it", page.script("return document.cookie"), "")
    page.open("/?reload")
    page.until("it outlives a reload", lambda: page.text("#session") == "Log out")


def switch(page, verb, note, say):
    """Presses a lane's button and confirms, by keyboard."""
    page.until(f"FCM has a button to {verb.lower()} it", lambda: page.script(
        "const b = document.querySelector(arguments[0]); b?.focus(); return document.activeElement === b && b !== null",
        f'button[aria-label="{verb} porteiro / fcm"]'))
    page.keys(Keys.ENTER)
    page.until("it asks before", lambda: page.text("#switch-title") == f"{verb} porteiro / fcm?")
    page.keys(Keys.ESCAPE)
    page.until("Escape changes nothing", lambda: not page.script("return document.getElementById('switch').open"))
    check("nothing was done", say in sql(page.options, "select action from push.audit"), False)
    page.keys(Keys.ENTER)
    page.until("it asks again", lambda: page.script("return document.getElementById('switch').open"))
    page.keys(note, Keys.ENTER)


def lanes(page):
    switch(page, "Pause", "quota exceeded, see ticket 7", "pause_lane")
    page.until("the page says that the lane is paused",
        lambda: "paused" in page.text("#lanes") and "quota exceeded, see ticket 7" in page.text("#lanes"))
    page.until("and above all", lambda: page.text("#verdict-word") == "porteiro FCM: paused")
    check("the database has it", sql(page.options, "select app, provider from push.lanes where paused"), "porteiro|fcm")
    audit = "select action, target, via, operator, detail ->> 'note' from push.audit order by id desc limit 1"
    check("the audit says who and why", sql(page.options, audit),
        "pause_lane|porteiro/fcm|push-gateway dashboard|ops|quota exceeded, see ticket 7")
    page.until("the intervention is on the page, and whose it is",
        lambda: "quota exceeded" in page.text("#audit") and "ops, push-gateway dashboard" in page.text("#audit"))
    switch(page, "Resume", "quota raised", "resume_lane")
    page.until("the lane sends again", lambda: "paused" not in page.text("#lanes"))
    check("the audit says that too", sql(page.options, audit), "resume_lane|porteiro/fcm|push-gateway dashboard|ops|quota raised")
    refused = page.driver.execute_async_script("""const done = arguments[0]; fetch('/ui/lanes',
      {method: 'POST', headers: {'Content-Type': 'application/json'},
      body: JSON.stringify({app: 'porteiro', provider: 'fcm', paused: true, note: 'x'})}).then((r) => done(r.status))""")
    check("the cookie alone changes nothing", refused, 403)
    page.quiet("a request without the token", expected=["403"])


def credentials(page):
    """Another replica says that Apple refuses a key: of porteiro, which the gateway also serves, and of an app that it alone serves."""
    def beats():
        sql(page.options, "update push.gateways set heartbeat_at = now(), doubted_at = null where name = 'other' and alive")
        return True
    sentence = "Apple refuses the key of porteiro (403 InvalidProviderToken): check key_id ABC123DEFG"
    sql(page.options, "select push.register_gateway('other', '1'); "
        "select push.register_lane('alone', 'apns'); "
        "select push.report_lanes((select id from push.gateways where name = 'other'), "
        "array[l.id], array[1], array[1], array[0], "
        f"array['open'], array[0], array[0], array[replace('{sentence}', 'porteiro', l.app)], array['all']) "
        "from push.lane l where l.app in ('porteiro', 'alone') and l.provider = 'apns'")
    page.until("refused credentials are named above all, with what to check",
        lambda: beats() and page.text("#verdict-word") == sentence.replace("porteiro", "alone"))
    check("with a link to the page", page.text("#verdict-why"), "What to do: Credentials fail")
    page.until("one of two replicas that is refused is named",
        lambda: beats() and f"replica other: {sentence}; 1 of 2 replicas send" in page.text("#troubles"))
    check("and is not all of the lane", sql(page.options,
        "select refused from push.lanes where app = 'porteiro' and provider = 'apns'"), "some")
    sql(page.options, "select push.retire_gateway(id) from push.gateways where name = 'other'")
    page.until("and no longer when they are accepted", lambda: "refuses the key" not in page.text("#verdict-word"))
    sql(page.options, "delete from push.lane_status s using push.lane l where l.app = 'alone' and s.lane = l.id; "
        "delete from push.lane where app = 'alone'")


def looks(page):
    def ready():
        return page.text("#live") == "live" and page.script("return document.querySelectorAll('#charts svg').length") == 3

    def fits():
        return page.script("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    for scheme in ("light", "dark"):
        page.show(1280, 1000, scheme)
        page.open(f"/?{scheme}")
        page.until(f"{scheme} is drawn", ready)
        light = page.script("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b) > "
            "380")
        check(f"{scheme} is {scheme}", light, scheme == "light")
        if scheme == "light":
            page.picture(scheme)
    for width in (360, 390, 768, 1920):
        page.show(width, 800, "light")
        page.open(f"/?{width}")
        page.until(f"{width} px are drawn", ready)
        check(f"the overview fits {width} px", fits())
        page.script("location.hash = '#call=call-failed'")
        page.until(f"the call is drawn at {width} px", lambda: "UNREGISTERED" in page.text("#call"))
        check(f"a call fits {width} px", fits())
    page.show(1280, 1000, "light")
    page.open("/?call#call=call-failed")
    page.until("the call is drawn", lambda: "UNREGISTERED" in page.text("#call") and page.text("#live") == "live")
    page.picture("call")
    page.quiet("looks")


def call_list(page):
    """The list of calls; its filters are in the address."""
    page.open("/?list#calls")
    page.until("the list has the calls", lambda: all(name in page.text("#calls table") for name in ("call-failed", "call-answered")))
    check("hostile ids are text there", ["<img src=x onerror=alert(1)>" in page.text("#calls table"),
        page.script("return document.querySelectorAll('#calls img, #calls script').length")], [True, 0])
    check("what became of the invites is there", "dead UNREGISTERED" in page.text("#calls table"))
    check("times name their zone", page.text("#calls td:nth-child(2)").count("UTC"), page.script(
        "return document.querySelectorAll('#calls tbody tr').length"))
    page.open("/?user#calls&user=elisa")
    page.until("a user's calls", lambda: page.text("#calls tbody td:first-child") == "call-failed")
    check("the filter shows it", page.script("return document.querySelector('#calls [name=user]').value"), "elisa")
    page.script("const o = document.querySelector('#calls [name=outcome]'); o.value = 'answered'; "
        "o.dispatchEvent(new Event('change', {bubbles: true}))")
    page.until("a chosen filter is in the address, beside the others", lambda: page.script("return location.hash")
        == "#calls&user=elisa&outcome=answered&since=60" and "No call matches" in page.text("#calls"))
    page.driver.back()
    page.until("and goes back", lambda: page.text("#calls tbody td:first-child") == "call-failed")
    page.script("document.querySelector('#calls tbody a').click()")
    page.until("a row opens its call", lambda: "UNREGISTERED" in page.text("#call"))
    page.keys(Keys.ESCAPE)
    page.until("and Escape comes back to the list", lambda: page.script("return location.hash") == "#calls&user=elisa")
    page.quiet("the list of calls")


def call_actions(page):
    """A call is tried again and ended, with a note, as a lane is paused."""
    sql(page.options, "select push.enqueue_call('{\"callId\": \"call-ending\", \"from\": \"doorman-7\"}', "
        "'[{\"userId\": \"bruno\", \"fcmToken\": \"fault-SENDER_ID_MISMATCH-brunos-phone\"}]', 'porteiro', 600)")
    page.open("/?ending#call=call-ending")
    page.until("the call has failed", lambda: "SENDER_ID_MISMATCH" in page.text("#call table"))
    audit = "select action, target, via, operator, detail ->> 'note' from push.audit order by id desc limit 1"
    for label, action, note in (("Try again", "requeue", "the app was updated"), ("End the call", "void_call", "a test call")):
        page.until(f"there is a button: {label}", lambda label=label: page.script(
            "const b = [...document.querySelectorAll('#call button')].find((n) => n.innerText === arguments[0]); b?.click(); "
            "return document.getElementById('switch').open", label))
        check("it asks before", "call-ending of porteiro?" in page.text("#switch-title"))
        page.keys(note, Keys.ENTER)
        page.until(f"the audit says who and why: {action}", lambda action=action, note=note: sql(page.options, audit)
            == f"{action}|porteiro/call-ending|push-gateway dashboard|ops|{note}")
    page.until("the call has ended, and has no buttons any more",
        lambda: "ended" in page.text("#call .facts") and page.text("#call .buttons") == "")
    check("the database has it", sql(page.options, "select state, voided from push.outbox where call_id = 'call-ending'"), "ended|t")
    page.quiet("a call that is ended")


def contrasts(page):
    """The least contrast of a visible badge's text with its background, by WCAG 2."""
    return page.script("""
      const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
          .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      return Object.fromEntries(["ok", "warn", "bad", "idle"].map((state) => [state, (() => {
        const node = document.body.appendChild(document.createElement("span"));
        node.className = "badge";
        node.dataset.state = state;
        const style = getComputedStyle(node);
        const [a, b] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
        node.remove();
        return (a + 0.05) / (b + 0.05);
      })()]));""")


def trouble(page):
    """Forty apps, of which some are in trouble."""
    sql_file(page.options, "trouble.sql")
    page.show(1280, 1000, "light")
    page.open("/?trouble")
    page.until("the headline names app, provider and reason of the worst",
        lambda: page.text("#verdict-word") == "building17 FCM: 8 of 8 refused in the last 5 minutes, UNREGISTERED")
    check("what to do is what its reason asks for", page.text("#verdict-why"), "What to do: Tokens vanish")
    lines = [line for line in page.text("#troubles li").split("\n") if line.startswith("building")]
    check("the others follow, the worst first", [" ".join(line.split()[:2]) for line in lines],
        ["building05 Expo:", "building21 FCM:", "building09 APNs:"])
    check("each with what it is", ["circuit open" in lines[0], "5 of 95 refused in the last 5 minutes, UNREGISTERED" in lines[1],
        lines[2].startswith("building09 APNs: throttled for ")], [True] * 3)
    check("the worst lane is the first row", page.text("#lanes tbody tr:first-child").startswith("building17 FCM"))
    check("lanes that send are folded", [set(page.text("#lanes > table tbody b").split("\n")) - {"porteiro"},
        "lanes send" in page.text("#lanes summary")], [{"building17", "building05", "building21", "building09"}, True])
    page.script("document.querySelector('#lanes summary').click()")
    page.until("until they are opened", lambda: "building40" in page.text("#lanes"))
    states = page.script("return performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/ui/state')).length")
    page.until("and stay open when the page is drawn again", lambda: page.script("return performance.getEntriesByType('resource')"
        ".filter((e) => e.name.endsWith('/ui/state')).length") > states + 2 and "building40" in page.text("#lanes"))
    check("the pill says for how long, and not until when", [
        bool(re.search("building09/apns: throttled for [56]. min", page.text("#health .badge"))),
        "-11-" in page.text("#health") or "+00" in page.text("#health")], [True, False])
    check("hints are about what is true now", ["A throttled lane sends again by itself" in page.text("#health"),
        "ends a pause" in page.text("#health")], [True, False])
    links = page.script("return [...new Set([...document.querySelectorAll('#health a, #verdict a')].map((a) => a.getAttribute('href')))]")
    pages = page.driver.execute_async_script("const [links, done] = arguments; Promise.all(links.map(async (link) => "
        "{ const r = await fetch(link); return r.status + ' ' + (await r.text()).split('\\n')[0]; })).then(done)", links)
    check("and lead to pages of operations", [text[:5] for text in pages], ["200 #"] * len(pages))
    check("there are such links", len(links) > 1)
    app_filter(page)
    paused(page)
    for scheme in ("light", "dark"):
        page.show(1280, 1000, scheme)
        check(f"badges can be read, {scheme}", {state: ratio for state, ratio in contrasts(page).items() if ratio < 4.5}, {})
    sql_file(page.options, "stuck.sql")
    page.open("/?stuck")
    page.until("invites that expire unsent are the worst", lambda: page.text("#verdict-word").startswith(
        "building30 FCM: 183 invites ready, and not claimed"))
    rows = page.text("#stuck tbody tr").split("ready, and not claimed")
    check("equal rows are one, and rings come before missed calls", ["invite\t183" in rows[1] or "invite" in rows[1] and "183" in rows[1],
        "missed call" in rows[2] and "12" in rows[2]], [True, True])
    page.picture("dark")
    page.show(390, 844, "dark", scale=1.5)
    page.open("/?small")
    page.until("a phone is drawn", lambda: page.text("#live") == "live" and "building30" in page.text("#verdict-word"))
    top = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    order = [page.script(top, part) for part in ("#verdict", "#health", "#lanes", "#charts")]
    check("on a phone what is wrong comes before charts", order, sorted(order))
    check("the first screen has the headline and what follows it", page.script("return document.querySelector('#troubles')"
        ".getBoundingClientRect().bottom < 844"))
    check("nothing is wider than the screen", page.script("return document.documentElement.scrollWidth"), 390)
    check("the name of a check is not squeezed", page.script(
        "return Math.min(...[...document.querySelectorAll('#health .head b')].map((n) => n.getBoundingClientRect().width)) > 35"))
    page.picture("phone")
    page.quiet("trouble")


def app_filter(page):
    page.script("document.querySelector('#lanes tbody a').click()")
    page.until("an app's link filters", lambda: page.script("return location.hash") == "#app=building17")
    page.until("its lanes alone are left, unfolded",
        lambda: set(page.text("#lanes tbody b").split("\n")) == {"building17"} and page.text("#lanes summary") == "")
    check("the headline is about it", page.text("#verdict-word"), "building17 FCM: 8 of 8 refused in the last 5 minutes, UNREGISTERED")
    check("nothing of the others", page.text("#troubles"), "")
    page.open("/?filtered#app=building22")
    page.until("the address has the filter", lambda: set(page.text("#lanes tbody b").split("\n")) == {"building22"})
    check("an app without trouble has none", page.text("#verdict-word"), "No calls")
    check("the choice shows the app", page.script("return document.getElementById('app').value"), "building22")
    page.script("const s = document.getElementById('app'); s.value = ''; s.dispatchEvent(new Event('change', {bubbles: true}))")
    page.until("all apps again",
        lambda: page.text("#verdict-word").startswith("building17") and "lanes send" in page.text("#lanes summary"))


def paused(page):
    """The refresh is paused. That nothing is drawn is seen once the gateway has a state that is five seconds younger."""
    state = ("const done = arguments[0]; fetch('/ui/state').then((r) => r.json())"
        ".then((s) => done([s.overview.now, JSON.stringify(s.overview.audit)]))")
    page.keys("p")
    page.until("the refresh is paused", lambda: page.text("#live").startswith("paused at ") and page.text("#live").endswith(" UTC"))
    begun = page.driver.execute_async_script(state)[0]
    sql(page.options, "select push.pause_lane('building40', 'expo', 'while the page is paused')")

    def later():
        now, audit = page.driver.execute_async_script(state)
        return now > begun + 5000 and "while the page is paused" in audit
    page.until("the gateway goes on", later)
    check("a paused page does not change", ["while the page is paused" in page.text("#audit"), page.text("#stale")], [False, ""])
    page.keys("p")
    page.until("and goes on afterwards", lambda: "while the page is paused" in page.text("#audit") and page.text("#live") == "live")
    sql(page.options, "select push.resume_lane('building40', 'expo')")


def locked(page):
    """Where reading needs a login."""
    page.show(1280, 960, "light")
    page.open()
    page.until("it asks for a key by itself", lambda: page.script("return document.getElementById('login').open"))
    page.until("and says why nothing is there",
        lambda: page.text("#verdict-word") == "Log in to see how calls are" and "log in" in page.text("#stale"))
    check("nothing of the state is shown", [page.text(part) for part in ("#lanes", "#replicas", "#audit")], ["", "", ""])
    page.keys(Keys.ESCAPE)
    page.until("Escape closes the dialog", lambda: not page.script("return document.getElementById('login').open"))
    page.open("/?locked#call=call-failed")
    page.until("a call is not told, either", lambda: "could not be read" in page.text("#call") or "Looking" in page.text("#call"))
    check("nothing of it", "UNREGISTERED" in page.text("#call"), False)
    page.until("it asks again after a reload", lambda: page.script("return document.getElementById('login').open"))
    page.keys(Path(page.options.key_file).read_text().strip(), Keys.ENTER)
    page.until("with the key the call is told", lambda: "UNREGISTERED" in page.text("#call"))
    page.open("/?unlocked")
    page.until("and everything else", lambda: page.text("#live") == "live" and "alive" in page.text("#replicas"))
    page.quiet("a locked page", expected=["401"])
    # The key is taken away: the page tells, and forgets who it was.
    os.truncate(page.options.key_file, 0)
    page.until("a session ends with its key", lambda: page.text("#session") == "Log in" and page.text("#who") == "")
    page.quiet("a key that is taken away", expected=["401"])


def stale(page):
    """The gateway stops answering."""
    page.show(1280, 960, "light")
    page.open("/?stale")
    page.until("it is live before", lambda: page.text("#live") == "live")
    os.kill(page.options.gateway_pid, signal.SIGSTOP)
    try:
        page.until("old data is said to be old, and since when",
            lambda: "nothing was heard since" in page.text("#stale") and page.text("#live") == "stale")
    finally:
        os.kill(page.options.gateway_pid, signal.SIGCONT)
    page.until("it is live again", lambda: page.text("#live") == "live" and page.text("#stale") == "")
    sql(page.options, "alter function push.overview rename to overview_away")
    page.open("/?away")
    page.until("a page that is loaded while the database is away says so",
        lambda: page.text("#verdict-word") == "The database does not answer: nothing is sent")
    check("and what to do", page.script("return document.querySelector('#verdict-why a').getAttribute('href')"),
        "/ui/operations/database-failed-over.md")
    sql(page.options, "alter function push.overview_away rename to overview")
    page.until("until it is back", lambda: page.text("#live") == "live" and "database" not in page.text("#verdict-word"))
    page.quiet("a database that is away", expected=["503"])
    page.driver.find_element(By.ID, "session").click()
    page.until("logging out takes the buttons away", lambda: page.text("#session") == "Log in" and page.text("#lanes button") == "")


def main():
    parser = argparse.ArgumentParser()
    for name in ("url", "key-file", "psql", "database", "pictures"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--gateway-pid", type=int, required=True)
    parser.add_argument("--locked", action="store_true", help="the gateway is one that needs a login; empties the key's file")
    page = Page(parser.parse_args())
    try:
        parts = (locked,) if page.options.locked else (
            overview, failed_call, hostile_call, call_list, log_in, lanes, credentials, looks, call_actions, trouble, stale)
        for part in parts:
            part(page)
    finally:
        page.driver.quit()
    print(f"{results[True]} passed, {results[False]} failed")
    sys.exit(0 if results[False] == 0 else 1)


main()
