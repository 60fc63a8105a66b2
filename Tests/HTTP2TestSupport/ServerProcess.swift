// A server program that runs during a test.

import Foundation
import Runtime
import TestProcess

/// A program that listens on a port of 127.0.0.1. It is stopped when this object is released or this process ends.
// @unchecked: nothing changes after `init`.
public final class ServerProcess: @unchecked Sendable {
  struct NotStarted: Error {}

  private let shell = Process()
  private let input = Pipe()
  private let server: pid_t

  /// Starts it and waits until it listens.
  init(_ command: [String], port: UInt16) throws {
    let output = Pipe()
    shell.executableURL = URL(filePath: "/bin/sh")
    // The shell stops the server when its standard input ends, which happens however this process ends. It does not use SIGTERM: a child
    // inherits the signal mask of a dispatch thread, in which that is blocked.
    shell.arguments = ["-c", "\"$@\" >/dev/null 2>&1 & echo $!; read -r _; kill -9 $!", "sh"] + command
    shell.environment = ["PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/opt/homebrew/bin"]
    shell.standardInput = input
    shell.standardOutput = output
    shell.standardError = FileHandle.nullDevice
    try shell.start()
    let line = String(decoding: output.fileHandleForReading.availableData, as: UTF8.self)
    guard let pid = pid_t(line.trimmingCharacters(in: .newlines)) else { throw NotStarted() }
    server = pid
    let limit = Date(timeIntervalSinceNow: 120)
    while !Self.listens(port) {
      guard kill(server, 0) == 0, Date() < limit else { throw NotStarted() }
      usleep(5_000)
    }
  }

  /// Without waiting: other children may hold the write end of the shell's input, so it might not end by itself.
  deinit {
    kill(server, SIGKILL)
    if shell.isRunning { kill(shell.processIdentifier, SIGKILL) }
    try? input.fileHandleForWriting.close()
  }

  /// A port without a listener, for servers that cannot choose one themselves. The system gives it to no other process while
  /// this process runs: a socket that is bound and does not listen holds it.
  public static func freePort() throws -> UInt16 {
    let holder = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    var on: Int32 = 1
    setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
    var place = sockaddr_in()
    place.sin_family = sa_family_t(AF_INET)
    place.sin_addr.s_addr = inet_addr("127.0.0.1")
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isHeld = withUnsafeMutablePointer(to: &place) { place in
      place.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(holder, $0, length) == 0 && getsockname(holder, $0, &length) == 0
      }
    }
    guard isHeld else { throw NotStarted() }
    return UInt16(bigEndian: place.sin_port)
  }

  private static func listens(_ port: UInt16) -> Bool {
    guard let socket = try? TCPSocket.connect(to: SocketAddress(numericHost: "127.0.0.1", port: port)!) else {
      return false
    }
    var entry = pollfd(fd: socket.rawValue, events: Int16(POLLOUT), revents: 0)
    return poll(&entry, 1, 1000) == 1 && TCPSocket.connectionError(socket) == nil
  }
}
