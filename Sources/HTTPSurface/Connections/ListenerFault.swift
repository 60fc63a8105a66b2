// The error for a listener that cannot be opened, in the terms of the configuration.

import Foundation
import NIOCore
import Settings

/// Why a listener cannot be opened: the key of the configuration, the address and the remedy.
struct ListenerFault: Error, CustomStringConvertible {
  let description: String
}

extension GatewayConfiguration.Listener {
  /// Runs a server on this address. If the address cannot be listened on, throws an error that names the configuration
  /// key and the reason.
  ///
  /// - Parameters:
  ///   - key: the configuration key of the listener.
  ///   - server: opens the listener, and runs until it is shut down.
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
    case EACCES: "ports below 1024 need root or CAP_NET_BIND_SERVICE"
    default: nil
    }
  }
}
