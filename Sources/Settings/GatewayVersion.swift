// What `push-gateway --version` prints and what a gateway registers itself with.

package enum GatewayVersion {
  package static let current = "0.1.0"
}
