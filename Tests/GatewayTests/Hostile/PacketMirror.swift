// A network that can lose packets: Tests/servers/packet_mirror.py.

import Foundation
import TestProcess

/// The running mirror. Peers listen on `peerAddress`; the gateway reaches them at `host`.
final class PacketMirror {
  static let peerAddress = "10.213.0.1"
  static let host = "10.213.0.2"

  private let process = Process()
  private let (input, output) = (Pipe(), Pipe())

  struct NotStarted: Error {}

  init() throws {
    let tests = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../servers/packet_mirror.py")
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["python3", tests.path()]
    process.standardInput = input
    process.standardOutput = output
    try process.start()
    guard line().hasPrefix("ready") else { throw NotStarted() }
  }

  deinit {
    try? input.fileHandleForWriting.close()
    process.waitUntilExit()
  }

  /// From now on loses the packets of these ports and no others; `<` before a port: only packets to the port, `>`: only
  /// packets from it. Returns the number of packets lost so far.
  @discardableResult
  func drop(_ ports: [String]) -> Int {
    let command = ports.isEmpty ? "pass" : "drop " + ports.joined(separator: " ")
    input.fileHandleForWriting.write(Data("\(command)\n".utf8))
    return Int(line().split(separator: " ").last ?? "") ?? 0
  }

  private func line() -> String {
    var line = Data()
    while line.last != UInt8(ascii: "\n"), case let part = output.fileHandleForReading.availableData, !part.isEmpty {
      line += part
    }
    return String(decoding: line, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
  }
}
