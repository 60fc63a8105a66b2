// Where the events of an app go.

package import Runtime

/// The webhook of one app.
package struct WebhookEndpoint: Sendable, Equatable {
  /// The app: the key under `apps` in the configuration.
  package var app: String
  /// `https://…`, or `http://…` on a loopback address. It may contain a secret, so it is neither logged nor stored.
  package var url: String
  /// Host and port of the URL, for people.
  package var host: String
  /// The types that are sent; nil: all.
  package var events: [String]?
  /// Maximum time of a request.
  package var timeout: Nanoseconds
  package var secrets: WebhookSecrets
  /// Nil: the connection goes directly to the receiver.
  package var proxy: HTTPProxy?

  package init(
    app: String, url: String, host: String, events: [String]? = nil, timeout: Nanoseconds, secrets: WebhookSecrets,
    proxy: HTTPProxy? = nil
  ) {
    self.app = app
    self.url = url
    self.host = host
    self.events = events
    self.timeout = timeout
    self.secrets = secrets
    self.proxy = proxy
  }

  /// SHA-256 of the URL in hex: what the database knows of it.
  var urlDigest: String { String(decoding: SHA256.hexDigest(Array(url.utf8)), as: UTF8.self) }

  package static func == (left: WebhookEndpoint, right: WebhookEndpoint) -> Bool {
    left.app == right.app && left.url == right.url && left.host == right.host && left.events == right.events
      && left.timeout == right.timeout && left.secrets == right.secrets && left.proxy === right.proxy
  }
}
