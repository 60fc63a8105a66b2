#!/usr/bin/env python3
"""Ports of 127.0.0.1 that nobody else is given, for a script's own servers.

usage: held_ports.py COUNT     prints a port a line, and holds them until it is ended

Its sockets are bound and do not listen: a server that asks for one of the ports by its number, with SO_REUSEADDR, gets it.
"""

import signal
import socket
import sys


def hold():
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


if __name__ == "__main__":
    held = [hold() for _ in range(int(sys.argv[1]))]
    print("\n".join(str(one.getsockname()[1]) for one in held), flush=True)
    signal.pause()
