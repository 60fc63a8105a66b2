// When a file counts as changed.

import Foundation
import Runtime
import Testing

@Suite("File stamp", .timeLimit(.minutes(10))) struct FileStampTests {
  @Test("another content, mode or file of the same name has another stamp, and a missing file has none")
  func changes() throws {
    let path = FileManager.default.temporaryDirectory.appending(path: "stamp-\(UUID())").path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    #expect(FileStamp(path: path) == nil)
    try Data("one".utf8).write(to: URL(filePath: path))
    var stamps = [try #require(FileStamp(path: path))]
    #expect(FileStamp(path: path) == stamps[0])
    // The system counts time in steps of milliseconds.
    while FileStamp(path: path) == stamps[0] {
      try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
    }
    stamps.append(try #require(FileStamp(path: path)))
    try Data("three".utf8).write(to: URL(filePath: path))
    stamps.append(try #require(FileStamp(path: path)))
    try Data("three".utf8).write(to: URL(filePath: path), options: .atomic)
    stamps.append(try #require(FileStamp(path: path)))
    #expect(Set(stamps).count == 4)
  }
}
