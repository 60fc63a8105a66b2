// Tests of gzip with the gzip command.

import Foundation
import TestProcess
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct GzipTests {
  @Test(arguments: [0, 1, 1024, 100_000])
  func `the gzip command unpacks the output`(length: Int) throws {
    let plain = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 3) }
    let packed = try #require(Gzip.compress(plain))
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = ["gzip", "-dc"]
    let (input, output) = (Pipe(), Pipe())
    process.standardInput = input
    process.standardOutput = output
    try process.start()
    DispatchQueue.global().async {
      input.fileHandleForWriting.write(Data(packed))
      try? input.fileHandleForWriting.close()
    }
    let unpacked = try output.fileHandleForReading.readToEnd() ?? Data()
    process.waitUntilExit()
    #expect(process.terminationStatus == 0)
    #expect(Array(unpacked) == plain)
  }
}
