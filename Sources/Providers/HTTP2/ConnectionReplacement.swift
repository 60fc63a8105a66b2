// Why connections to a provider had to be replaced.

internal import Runtime

/// Why a connection that was ready takes no more requests. Connections that the pool closes because it needs fewer, or at shutdown,
/// are not counted. The label `reason` of `push_gateway_connections_replaced_total`.
public enum ConnectionReplacement: String, CaseIterable, Sendable {
  /// A PING got no answer: the peer is gone, or a NAT has forgotten the connection.
  case silent
  /// It answered PINGs but no requests.
  case unanswered
  /// It was closed or reset, broke the protocol, or let requests end without an answer.
  case lost
  /// The peer sent GOAWAY.
  case goaway
  /// The peer refuses requests on this connection that it would accept on a new one.
  case worn
  /// All of its stream ids have been used.
  case exhausted
}

extension HTTP2ConnectionHealth {
  /// Why a connection of this health is replaced; nil if it is sound.
  var replacement: ConnectionReplacement? {
    switch self {
    case .sound: nil
    case .doubtful: .silent
    case .unanswered, .unresponsive: .unanswered
    }
  }
}
