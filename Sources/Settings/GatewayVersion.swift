// The version that `push-gateway --version` prints, and that a gateway registers in the database.

package enum GatewayVersion {
  package static let current = "0.2.0"
}
