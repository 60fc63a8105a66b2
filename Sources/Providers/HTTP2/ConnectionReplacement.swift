// Why connections to a provider had to be replaced.

internal import Runtime

/// Why a connection that had been ready takes no more requests, other than by our own wish. The label `reason` of
/// `push_gateway_connections_replaced_total`.
public enum ConnectionReplacement: String, CaseIterable, Sendable {
  /// It answered a PING with nothing: the peer is gone, or a NAT has forgotten the connection.
  case silent
  /// It answered PINGs, and no request.
  case unanswered
  /// It was closed or reset, broke the protocol, or let requests end without an answer.
  case lost
  /// The peer said GOAWAY.
  case goaway
  /// The peer goes on refusing there what it would take on a new connection.
  case worn
  /// All of its stream ids have been used.
  case exhausted
}

extension HTTP2ConnectionHealth {
  /// Why a connection of this health is left; nil for one that has nothing wrong with it.
  var replacement: ConnectionReplacement? {
    switch self {
    case .sound: nil
    case .doubtful: .silent
    case .unresponsive: .unanswered
    }
  }
}
