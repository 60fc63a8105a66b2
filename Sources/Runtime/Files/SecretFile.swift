// Small files that hold a secret: keys, service accounts, access tokens. They are read as a whole, or refused with path and reason.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Reads files that hold a secret. Errors name the path, never the content.
public enum SecretFile {
  /// Maximum size of a secret. A larger file was named by mistake.
  public static let sizeMax = 64 * 1024

  /// Who else may read a file.
  public enum Privacy: Equatable, Sendable {
    /// Its group: systemd's credentials and Kubernetes' fsGroup are read that way. Bits of the mode for all others are refused,
    /// and so is an owner who is neither root nor the user of this process, because an owner can change file and mode.
    case required
    /// Everybody: the operator allowed it, or the file holds no secret.
    case waived
  }

  /// A file that cannot be read, or must not be used.
  public struct Failure: Error, Equatable, CustomStringConvertible, Sendable {
    public enum Reason: Equatable, Sendable {
      case missing
      case tooLarge
      /// Every user of this machine may read or write it; the permission bits of its mode.
      case exposed(mode: UInt32)
      /// Its owner (uid) is neither root nor the user of this process, whose uid is `user`.
      case foreign(owner: UInt32, user: UInt32)
      /// The system's error message.
      case unreadable(String)
    }

    public var reason: Reason
    public var path: String

    public init(_ reason: Reason, path: String) {
      self.reason = reason
      self.path = path
    }

    public var description: String {
      switch reason {
      case .missing: "\(path): no such file"
      case .tooLarge: "\(path): larger than \(SecretFile.sizeMax) bytes: probably the wrong file"
      case .exposed(let mode):
        "\(path): its mode \(Self.octal(mode)) lets every user of this machine read or replace it: chmod 640 \(path) "
          + "(Kubernetes: defaultMode: 0400), or allow it with security.allow_readable_secrets: true"
      case .foreign(let owner, let user):
        "\(path): owned by uid \(owner); the owner must be root or the gateway's user (uid \(user)): chown it, or "
          + "allow it with security.allow_readable_secrets: true"
      case .unreadable(let why): "\(path): cannot be read (\(why)): check its permissions"
      }
    }

    private static func octal(_ mode: UInt32) -> String {
      let digits = String(mode, radix: 8)
      return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
    }
  }

  /// The whole file, without the byte order mark that some editors put first.
  ///
  /// - Parameter privacy: the requirements on its owner and mode. Links are followed.
  public static func read(_ path: String, privacy: Privacy = .required) throws(Failure) -> [UInt8] {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      throw errno == ENOENT
        ? Failure(.missing, path: path)
        : Failure(.unreadable(FileDescriptor.SystemError(call: "open").description), path: path)
    }
    let file = FileDescriptor(owning: descriptor)
    var status = stat()
    // The open file is checked, not its path, which may name another file by now.
    if privacy == .required, unsafe fstat(descriptor, &status) == 0, let reason = exposure(status) {
      throw Failure(reason, path: path)
    }
    var content: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 4096)
    while true {
      let count: Int
      do {
        count = try file.readSome(into: &chunk)
      } catch {
        throw Failure(.unreadable(error.description), path: path)
      }
      guard count > 0 else { return content.withoutByteOrderMark }
      content.append(contentsOf: chunk[..<count])
      guard content.count <= sizeMax else { throw Failure(.tooLarge, path: path) }
    }
  }

  /// Why a file must not hold a secret; nil if it may, or if there is no file.
  public static func exposure(of path: String) -> Failure? {
    var status = stat()
    guard unsafe stat(path, &status) == 0 else { return nil }
    return exposure(status).map { Failure($0, path: path) }
  }

  /// Only regular files are checked. Others cannot open a pipe by its path.
  private static func exposure(_ status: stat) -> Failure.Reason? {
    guard status.st_mode & S_IFMT == S_IFREG else { return nil }
    let everybodys: mode_t = 0o006
    if status.st_mode & everybodys != 0 { return .exposed(mode: UInt32(status.st_mode & 0o7777)) }
    let user = geteuid()
    guard status.st_uid == 0 || status.st_uid == user else { return .foreign(owner: status.st_uid, user: user) }
    return nil
  }
}
