"""What somebody on call does with the dashboard, in headless Chromium; and the pictures for the README.

Every check prints a line; the last says how many passed and failed. Anything in the browser's console, any violation of
the content security policy and any script error fails it.
"""

import argparse
import base64
import os
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

SECONDS_MAX = 20
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


def overview(page):
    page.show(1280, 960, "light")
    page.open()
    page.until("the page says how calls are", lambda: page.text("#verdict-word") in ("Calls are ringing", "Some calls fail"))
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
    page.keys(Keys.ARROW_LEFT)
    page.until("arrow keys read a chart", lambda: "p50" in page.text("#charts .axis") and "min ago" in page.text("#charts .axis"))
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
    page.until("and above all", lambda: page.text("#verdict-word") == "A lane is paused")
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
    """Another replica, which no heartbeat ends, says that Apple refuses a key."""
    sentence = "Apple refuses the key of porteiro (403 InvalidProviderToken): check key_id ABC123DEFG"
    sql(page.options, "select push.register_gateway('other', '1'); "
        "update push.gateways set heartbeat_at = now() + interval '1 hour' where name = 'other'; "
        "select push.report_lanes((select id from push.gateways where name = 'other'), array[l.id], array[1], array[1], array[0], "
        f"array['open'], array[0], array[0], array['{sentence}'], array['all']) "
        "from push.lane l where l.app = 'porteiro' and l.provider = 'apns'")
    page.until("refused credentials are named above all", lambda: page.text("#verdict-word") == "Credentials are refused")
    check("with what to check", page.text("#verdict-why"), f"{sentence}.")
    sql(page.options, "select push.retire_gateway(id) from push.gateways where name = 'other'")
    page.until("and no longer when they are accepted", lambda: page.text("#verdict-word") != "Credentials are refused")


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
        page.picture(scheme)
    for width in (360, 768, 1920):
        page.show(width, 800, "light")
        page.open(f"/?{width}")
        page.until(f"{width} px are drawn", ready)
        check(f"the overview fits {width} px", fits())
        page.script("location.hash = '#call=call-failed'")
        page.until(f"the call is drawn at {width} px", lambda: "UNREGISTERED" in page.text("#call"))
        check(f"a call fits {width} px", fits())
    page.show(1280, 1000, "light")
    page.open("/?call#call=call-failed")
    page.until("the call is drawn", lambda: "UNREGISTERED" in page.text("#call"))
    page.picture("call")
    page.show(360, 740, "dark", scale=2)
    page.open("/?phone")
    page.until("a phone is drawn", ready)
    page.picture("phone")
    page.quiet("looks")


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
        parts = (locked,) if page.options.locked else (overview, failed_call, hostile_call, log_in, lanes, credentials, looks, stale)
        for part in parts:
            part(page)
    finally:
        page.driver.quit()
    print(f"{results[True]} passed, {results[False]} failed")
    sys.exit(0 if results[False] == 0 else 1)


main()
