"""An HTTPS receiver of webhooks, of nothing but Python's standard library. What it answers depends on the path."""

import http.server
import ssl
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Arrival:
    """One request, the status that it was answered with (None: none), and just before when."""

    path: str
    headers: dict
    body: bytes
    at: float = field(default_factory=time.monotonic)
    status: int | None = None
    answered_at: float | None = None


class Receiver:
    """Serves on 127.0.0.1, a free port. `behave[PATH]` answers a request: a function of the arrival and its handler, which
    returns a status, or a status and headers, or None if it has answered itself."""

    def __init__(self, certificate, key):
        self.arrivals, self.behave, self.lock = [], {}, threading.Lock()
        self.stopped = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 60

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                arrival = Arrival(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                with receiver.lock:
                    receiver.arrivals.append(arrival)
                answer = receiver.behave.get(self.path, lambda *_: 404)(arrival, self)
                if answer is None:
                    self.close_connection = True
                    return
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                arrival.answered_at, arrival.status = time.monotonic(), status
                self.end_headers()

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()

    def at(self, path, acknowledged=False):
        with self.lock:
            return [one for one in self.arrivals
                    if one.path == path and (not acknowledged or one.status is not None and 200 <= one.status < 300)]


def acknowledge(_arrival, _handler):
    return 204
