"""A small XMPP client: plain TCP, SASL PLAIN, one resource. Enough to talk to a Prosody on the loopback."""

import base64
import socket
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from machine import PATIENCE_SECONDS

CLIENT = "{jabber:client}"


class Client:
    """Connects and binds. Stanzas that nobody waits for are kept."""

    def __init__(self, port, host, name, password, resource="phone", is_available=True, resumes=False):
        self.bare, self.jid = f"{name}@{host}", f"{name}@{host}/{resource}"
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self.kept = []
        self.number = 0
        self._open(host)
        secret = base64.b64encode(f"\0{name}\0{password}".encode()).decode()
        self.send(f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>")
        self.expect(lambda e: e.tag == "{urn:ietf:params:xml:ns:xmpp-sasl}success")
        self._open(host)
        self.ask(f"<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>{resource}</resource></bind>")
        if resumes:
            self.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>")
            self.expect(lambda e: e.tag == "{urn:xmpp:sm:3}enabled")
        if is_available:
            self.send("<presence/>")
            self.expect(lambda e: e.tag == CLIENT + "presence" and e.get("from") == self.jid)

    def _open(self, host):
        self.parser = ElementTree.XMLPullParser(["start", "end"])
        self.depth = 0
        self.send(f"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='{host}' "
                  "version='1.0'>")
        self._read_until(lambda e: e.tag == "{http://etherx.jabber.org/streams}features")

    def send(self, text):
        self.socket.sendall(text.encode())

    def message(self, to, content, kind="chat", name=None):
        """Sends a message; returns its id."""
        self.number += 1
        name = name or f"{self.jid}-{self.number}"
        self.send(f"<message to={quoteattr(to)} type='{kind}' id={quoteattr(name)}>{content}</message>")
        return name

    def ask(self, content, to=None, kind="set"):
        """Asks something; returns the answer's element, or fails with the server's error."""
        self.number += 1
        name = f"iq-{self.number}"
        self.send(f"<iq type='{kind}' id='{name}'" + (f" to={quoteattr(to)}" if to else "") + f">{content}</iq>")
        answer = self.expect(lambda e: e.tag == CLIENT + "iq" and e.get("id") == name)
        if answer.get("type") != "result":
            raise RuntimeError(f"the server refuses: {ElementTree.tostring(answer).decode()}")
        return answer

    def expect(self, wanted):
        """The next stanza that is wanted; others are kept."""
        for stanza in self.kept:
            if wanted(stanza):
                self.kept.remove(stanza)
                return stanza
        return self._read_until(wanted)

    def synchronise(self):
        """Waits until the server has handled all that was sent so far."""
        self.ask("<ping xmlns='urn:xmpp:ping'/>", kind="get")

    def _read_until(self, wanted):
        while True:
            for event, element in self.parser.read_events():
                self.depth += 1 if event == "start" else -1
                if event == "end" and self.depth == 1:
                    if wanted(element):
                        return element
                    self.kept.append(element)
            data = self.socket.recv(65536)
            if not data:
                raise RuntimeError("the server has closed the stream")
            self.parser.feed(data)

    def close(self):
        """Says goodbye, and waits until the server has, too."""
        self.send("</stream:stream>")
        while self.socket.recv(65536):
            pass
        self.socket.close()

    def vanish(self):
        """Is gone without a word, as a phone in a tunnel."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
