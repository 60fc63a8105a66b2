// Tells whether a file has changed since it was read.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Attributes that change when a file is written or replaced, or gets another owner or mode: a secret that everybody could read is
/// refused until its mode is corrected. Links are followed, so it works for a secret that is mounted by a symbolic link.
public struct FileStamp: Hashable, Sendable {
  private let device: UInt64
  private let inode: UInt64
  private let size: Int64
  private let modifiedAtNanoseconds: Int64
  /// Changes also with the owner and the mode.
  private let changedAtNanoseconds: Int64

  /// The current stamp of the file; nil if there is no file.
  public init?(path: String) {
    var status = stat()
    guard unsafe stat(path, &status) == 0 else { return nil }
    device = UInt64(truncatingIfNeeded: status.st_dev)
    inode = UInt64(truncatingIfNeeded: status.st_ino)
    size = Int64(status.st_size)
    #if canImport(Darwin)
    let (modified, changed) = (status.st_mtimespec, status.st_ctimespec)
    #else
    let (modified, changed) = (status.st_mtim, status.st_ctim)
    #endif
    modifiedAtNanoseconds = Self.nanoseconds(modified)
    changedAtNanoseconds = Self.nanoseconds(changed)
  }

  private static func nanoseconds(_ time: timespec) -> Int64 {
    Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
  }
}
