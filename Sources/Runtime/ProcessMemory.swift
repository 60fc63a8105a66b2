// Protects this process' memory, which has keys and tokens.

internal import CShims

public enum ProcessMemory {
  /// Disables core dumps of the process, and keeps other processes of the same user from attaching to it or reading it
  /// (prctl(2), PR_SET_DUMPABLE). Returns false on systems without this setting.
  @discardableResult public static func makePrivate() -> Bool { shim_prctl_not_dumpable() == 0 }
}
