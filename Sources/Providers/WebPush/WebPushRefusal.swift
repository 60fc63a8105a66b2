// Why a web push is refused without a request.

/// The reason of a push that was not sent.
public enum WebPushRefusal: String, CaseIterable, Sendable {
  /// The token is not the canonical text of a subscription.
  case malformedSubscription = "MalformedSubscription"
  /// The endpoint belongs to no allowed origin.
  case originNotAllowed = "OriginNotAllowed"
  /// The content is too large to be encrypted into 4096 bytes.
  case payloadTooLarge = "PayloadTooLarge"
  /// OpenSSL could not encrypt.
  case encryptionFailed = "EncryptionFailed"
  /// `WebPushConfiguration.originsMax` origins have connections and requests in flight, or the origin has made room for another.
  case tooManyOrigins = "TooManyOrigins"
}
