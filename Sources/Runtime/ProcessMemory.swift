// Who may read this process' memory, where keys and tokens are.

internal import CShims

public enum ProcessMemory {
  /// From now on no core dump is written of it, and other processes of the same user may neither attach to it nor read it
  /// (prctl(2), PR_SET_DUMPABLE). Returns false where the system has no such switch.
  @discardableResult public static func makePrivate() -> Bool { shim_prctl_not_dumpable() == 0 }
}
