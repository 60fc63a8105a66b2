// A listener that cannot be opened, in the words of the configuration.

import Foundation
import NIOCore
import Settings

/// Why a listener cannot be opened: the key of the configuration, the address and the remedy.
struct ListenerFault: Error, CustomStringConvertible {
  let description: String
}

extension GatewayConfiguration.Listener {
  /// Runs a server on it; where its address cannot be listened on, says which key and why.
  ///
  /// - Parameters:
  ///   - key: of the configuration.
  ///   - server: opens the listener, and runs.
  func named(_ key: String, _ server: () async throws -> Void) async throws {
    do {
      try await server()
    } catch let error as IOError {
      guard let reason = Self.reason(error.errnoCode) else { throw error }
      throw ListenerFault(description: "\(key): cannot listen on \(host):\(port): \(reason)")
    } catch is SocketAddressError.UnknownHost {
      throw ListenerFault(
        description: "\(key): cannot listen on \(host):\(port): \(host) has no address; is the name right?")
    }
  }

  private static func reason(_ code: CInt) -> String? {
    switch code {
    case EADDRINUSE: "another process listens there; `ss -ltnp` says which"
    case EADDRNOTAVAIL: "this machine does not have that address"
    case EACCES: "ports below 1024 are for root, or take CAP_NET_BIND_SERVICE"
    default: nil
    }
  }
}
