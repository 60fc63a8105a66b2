// Tests of the permissions of files with secrets.

import Foundation
import HTTP2TestSupport
import Testing

@testable import Runtime

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

@Suite struct SecretFileTests {
  /// A folder with a file `key`, removed when this object is released.
  private final class Folder {
    let path = FileManager.default.temporaryDirectory.appending(path: "secret-\(UUID().uuidString)").path()
    init() throws {
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
      try SecretFixture.write("secret", to: path + "/key")
    }
    deinit { try? FileManager.default.removeItem(atPath: path) }
  }

  private let owner: Folder
  private var folder: String { owner.path }
  private var file: String { owner.path + "/key" }

  init() throws { owner = try Folder() }

  @Test(arguments: [0o400, 0o440, 0o600, 0o640, 0o660, 0o700, 0o750])
  func `a file of its owner and its group is read`(mode: UInt32) throws {
    chmod(file, mode)
    #expect(try SecretFile.read(file) == Array("secret".utf8))
    #expect(SecretFile.exposure(of: file) == nil)
  }

  @Test(arguments: [
    (0o644, "0644"), (0o604, "0604"), (0o602, "0602"), (0o666, "0666"), (0o777, "0777"), (0o1644, "1644"),
  ])
  func `a file of everybody is refused, with its mode and what to do, unless that is waived`(
    mode: UInt32, text: String
  ) throws {
    chmod(file, mode)
    let failure = SecretFile.Failure(.exposed(mode: mode), path: file)
    #expect(throws: failure) { try SecretFile.read(file) }
    #expect(SecretFile.exposure(of: file) == failure)
    #expect(failure.description.contains("\(file): its mode \(text) "))
    #expect(failure.description.contains("chmod 640 \(file)"))
    #expect(failure.description.contains("security.allow_readable_secrets"))
    #expect(try SecretFile.read(file, privacy: .waived) == Array("secret".utf8))
    // The mode of a link does not count.
    symlink(file, folder + "/link")
    #expect(throws: SecretFile.Failure.self) { try SecretFile.read(folder + "/link") }
    chmod(file, 0o600)
    #expect(try SecretFile.read(folder + "/link") == Array("secret".utf8))
  }

  @Test(.enabled(if: geteuid() == 0, "only root can give files away"))
  func `a file of another user is refused, for he can change it and its mode`() throws {
    chown(file, 12_345, 0)
    let failure = SecretFile.Failure(.foreign(owner: 12_345, user: geteuid()), path: file)
    #expect(throws: failure) { try SecretFile.read(file) }
    #expect(failure.description.contains("uid 12345") && failure.description.contains("chown"))
    #expect(try SecretFile.read(file, privacy: .waived) == Array("secret".utf8))
  }

  @Test func `the mode of a pipe does not matter`() throws {
    let pipe = folder + "/pipe"
    #expect(mkfifo(pipe, 0o666) == 0)
    Thread.detachNewThread { try? Data("secret".utf8).write(to: URL(fileURLWithPath: pipe)) }
    #expect(try SecretFile.read(pipe) == Array("secret".utf8))
  }
}
