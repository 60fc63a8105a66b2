#!/usr/bin/env python3
"""A network of one cable, whose packets can really be lost.

    packet_mirror.py

Makes the network device `mirror` with the address 10.213.0.1. A program that connects to 10.213.0.2 reaches itself: packets to there
come back with both addresses exchanged, which leaves their checksums right. Needs CAP_NET_ADMIN, so run it in a network
namespace of its own (`unshare -n`).

Commands, a line each on standard input: `drop PORT...` loses every packet from or to these TCP ports from now on, silently;
a port with `<` before it loses only packets to it, with `>` only packets from it. `pass` loses none. Each is answered by `ok`
with the number of packets lost so far. It ends with its standard input.
"""
import fcntl
import os
import select
import struct
import subprocess
import sys

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def main() -> None:
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"mirror", IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "address", "add", "10.213.0.1/24", "dev", "mirror"], check=True)
    subprocess.run(["ip", "link", "set", "mirror", "up"], check=True)
    print("ready", flush=True)
    sources: set[int] = set()
    destinations: set[int] = set()
    lost = 0
    commands = b""
    while True:
        ready, _, _ = select.select([device, 0], [], [])
        if 0 in ready:
            read = os.read(0, 4096)
            if not read:
                return
            commands += read
            while b"\n" in commands:
                line, commands = commands.split(b"\n", 1)
                command, *ports = line.decode().split()
                sources = {int(port.lstrip(">")) for port in ports if command == "drop" and not port.startswith("<")}
                destinations = {int(port.lstrip("<")) for port in ports if command == "drop" and not port.startswith(">")}
                print("ok", lost, flush=True)
        if device in ready:
            packet = bytearray(os.read(device, 65536))
            if packet[0] >> 4 != 4:
                continue
            start = (packet[0] & 15) * 4
            if packet[9] == 6:
                source, destination = struct.unpack_from("!HH", packet, start)
                if source in sources or destination in destinations:
                    lost += 1
                    continue
            packet[12:16], packet[16:20] = packet[16:20], packet[12:16]
            os.write(device, packet)


if __name__ == "__main__":
    sys.exit(main())
