// What `push-gateway --version` prints and what a gateway registers itself with.

enum GatewayVersion {
  static let current = "0.1.0"
}
