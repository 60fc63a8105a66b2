"""An HTTP/1.1 server for tests of our HTTP client, made of nothing but Python's standard library.

usage: http_server.py [CERTIFICATE_CHAIN KEY]     with both: TLS; without: plain. Listens on 127.0.0.1, a free port.

Prints the port as its first line, then serves until it is terminated or the process that started it is gone.

  /echo         200, JSON about the request as it arrived; `connection` numbers connections, `body` is decompressed
  /busy         429, Retry-After: 7
  /large?N      200, N bytes
  /redirect     302 to /echo
  /cut          the promised body is cut off by closing the connection
  /unframed     200, one Expo ticket, no Content-Length: the connection's end is the body's
  /hang         the request is read and never answered
  /vanish       the request is read, and the connection closed without an answer
  /arrivals?NAME
                200, how often /vanish?NAME, or a push to NAME, has arrived
  /bomb?N       200, gzip that unfolds to N zeros
  /token?NAME   OAuth: an access token "NAME-N" good for an hour, N counting the requests for NAME; NAME may begin with
                short (good for 400 s), fail (400, invalid_grant), fail2 (so for the first two), once (so after the
                first), odd (200, no token)
  /--/api/v2/push/send
                Expo: a ticket a message, its id "{connection}-{messages in the request}-{to}"; what `to` begins with
                may ask for more: head (the id is made of three headers), dead (ticket error), slow (0.2 s), hang (no
                answer), vanish (the connection is closed without an answer), html (502), short (a ticket missing),
                mixed-X (refused with others than mixed-X in one request)
"""

import collections
import gzip
import http.server
import itertools
import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.parse

connections = itertools.count(1)
arrivals = collections.Counter()
grants = collections.Counter()
grants_lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self):
        super().setup()
        self.connection_number = next(connections)

    def log_message(self, *_):
        pass

    def date_time_string(self, timestamp=None):
        return "Sun, 06 Nov 1994 08:49:37 GMT"

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path, _, argument = self.path.partition("?")
        if path == "/echo":
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            facts = {
                "method": self.command,
                "path": self.path,
                "headers": [[name.lower(), value] for name, value in self.headers.items()],
                "body": body.decode(),
                "connection": self.connection_number,
                "time": time.time(),
            }
            if argument:
                time.sleep(float(argument))
            self.answer(200, json.dumps(facts).encode())
        elif path == "/busy":
            self.answer(429, b"{}", [("retry-AFTER", " 7 ")])
        elif path == "/large":
            self.answer(200, b"x" * int(argument))
        elif path == "/redirect":
            self.answer(302, headers=[("Location", "/echo")])
        elif path == "/bomb":
            self.answer(200, gzip.compress(bytes(int(argument))), [("Content-Encoding", "gzip")])
        elif path == "/cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")
            self.close_connection = True
        elif path == "/unframed":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data":[{"status":"ok","id":"unframed"}]}')
            self.close_connection = True
        elif path == "/vanish":
            arrivals[argument] += 1
            self.close_connection = True
        elif path == "/arrivals":
            self.answer(200, str(arrivals[argument]).encode())
        elif path == "/hang":
            threading.Event().wait()
        elif path == "/token":
            self.answer_oauth(argument, urllib.parse.parse_qs(body.decode(), strict_parsing=True))
        elif path == "/--/api/v2/push/send":
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self.answer_expo([message["to"] for message in json.loads(body)])
        else:
            self.answer(404)

    def answer_oauth(self, name, form):
        assertion = form["assertion"][0]
        if form["grant_type"] != ["urn:ietf:params:oauth:grant-type:jwt-bearer"] or assertion.count(".") != 2:
            self.answer(400, b'{"error":"invalid_request"}')
            return
        with grants_lock:
            grants[name] += 1
            count = grants[name]
        if name.startswith("sleepy2") and count <= 2:
            threading.Event().wait()
        time.sleep(0.05)  # long enough for others to ask meanwhile
        fails = name.startswith("fail") and not (name.startswith("fail2") and count > 2)
        if fails or (name.startswith("once") and count > 1):
            self.answer(400, b'{"error":"invalid_grant","error_description":"Invalid JWT Signature."}')
        elif name.startswith("odd"):
            self.answer(200, b'{"id_token":"x"}')
        else:
            lifetime = 400 if name.startswith("short") else 3600
            grant = {"access_token": f"{name}-{count}", "expires_in": lifetime, "token_type": "Bearer"}
            self.answer(200, json.dumps(grant).encode())

    def answer_expo(self, tokens):
        kinds = {token.split("-")[0] for token in tokens}
        if "hang" in kinds:
            threading.Event().wait()
        if "vanish" in kinds:
            arrivals.update(tokens)
            self.close_connection = True
            return
        if "slow" in kinds:
            time.sleep(0.2)
        if "big" in kinds:
            self.answer(413, b"<html>Request Entity Too Large</html>")
            return
        if "odd" in kinds:
            self.answer(400, b'{"errors":[{"code":"VALIDATION_ERROR","message":"m"}]}')
            return
        if "html" in kinds:
            self.answer(502, b"<html>Bad Gateway</html>")
            return
        projects = {}
        for token in tokens:
            if token.startswith("mixed-"):
                projects.setdefault("@team/" + token.split("-")[1], []).append(token)
        if len(projects) > 1:
            error = {"code": "PUSH_TOO_MANY_EXPERIENCE_IDS", "message": "…", "details": projects}
            self.answer(400, json.dumps({"errors": [error]}).encode())
            return
        tickets = [
            {"status": "error", "message": "…", "details": {"error": "DeviceNotRegistered"}}
            if token.startswith("dead")
            else {"status": "ok", "id": self.expo_id(token, len(tokens))}
            for token in tokens
        ]
        if "short" in kinds:
            tickets.pop()
        self.answer(200, json.dumps({"data": tickets}).encode())

    def expo_id(self, token, count):
        if token.startswith("head"):
            names = ("Authorization", "Content-Type", "Content-Encoding")
            return "|".join(str(self.headers.get(name)) for name in names)
        return f"{self.connection_number}-{count}-{token}"

    do_GET = do_POST = handle_request


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that hangs up or does not trust us is what some tests are about


def main():
    server = Server(("127.0.0.1", 0), Handler)
    if len(sys.argv) == 3:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1], sys.argv[2])
        # The handshake belongs to the connection's own thread, or one client that stalls would stop all others.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    # Started from a thread that blocks signals, a process has them blocked as well.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    parent = os.getppid()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    while os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main()
