// From a claimed delivery to the request its provider sends: whether, for how long, and with which bytes.

public import Providers
internal import PushModel
public import Queue
public import Runtime

/// Why a delivery cannot be sent. None of these gets better by waiting.
public enum PlanningFailure: Error, Equatable, Sendable {
  /// The ring window is over.
  case expired
  /// The app's dialect has no template for this provider and kind.
  case noTemplate
  /// The payload lacks what the template needs.
  case missingField(String)
  /// A missed call whose phone is told of the end of the call by a cancel, in words that say that it was missed.
  case saidByCancel
  /// The body is larger than the provider takes.
  case payloadTooLarge(bytes: Int, limit: Int)

  /// Whether only time ran out, and nothing is wrong with the call.
  public var isExpired: Bool { self == .expired }

  /// Whether there is nothing left to say.
  public var isNeedless: Bool { self == .saidByCancel }

  /// The reason as `push.history` and metrics keep it: one word, no content.
  public var reason: String {
    switch self {
    case .expired: "DeadlinePassed"
    case .noTemplate: "NoTemplate"
    case .saidByCancel: "SaidByCancel"
    case .missingField: "MissingField"
    case .payloadTooLarge: "PayloadTooLarge"
    }
  }
}

/// Plans the deliveries of one lane: one app's dialect over one provider.
public struct CallPlanner: Sendable {
  private static let platforms = DevicePlatform.allCases

  private let provider: ProviderKind
  /// A template that is passed on by one reference: its parts are many.
  private final class Shared: Sendable {
    let template: MessageTemplate

    init(_ template: MessageTemplate) { self.template = template }
  }

  /// By kind and platform.
  private let templates: [Shared?]
  private let appLanguage: Language?

  /// - Parameters:
  ///   - dialect: what the app's phones understand.
  ///   - provider: the lane's.
  ///   - appLocale: BCP 47; the language of texts the gateway writes itself where the device's locale gives none.
  public init(dialect: Dialect, provider: ProviderKind, appLocale: String? = nil) {
    self.provider = provider
    templates = PushTemplateKind.allCases.flatMap { kind in
      Self.platforms.map { dialect.template(provider, kind, on: $0).map(Shared.init) }
    }
    appLanguage = appLocale.flatMap { Language(locale: $0.utf8) }
  }

  /// The request for a delivery, or why there is none. Nothing but its arguments goes into it.
  /// - Parameters:
  ///   - delivery: as the outbox gave it out; its payload is an object, as `push.outbox.payload` holds it.
  ///   - now: compared with the delivery's deadline; what is left of it also gives the time of sending on the database's clock,
  ///     so that a gateway whose wall clock is wrong tells the phones the truth.
  ///   - tag: the caller's handle for the request.
  public func plan(_ delivery: Delivery, now: Instant, tag: UInt64) -> Result<PushRequest, PlanningFailure> {
    do throws(PlanningFailure) {
      return .success(try request(for: delivery, now: now, tag: tag))
    } catch {
      return .failure(error)
    }
  }

  private func request(for delivery: Delivery, now: Instant, tag: UInt64) throws(PlanningFailure) -> PushRequest {
    guard delivery.deadline > now else { throw .expired }
    guard let kind = PushTemplateKind(delivery.kind, callKind: delivery.callKind) else { throw .noTemplate }
    let index = kind.index * Self.platforms.count + Int(delivery.platform.rawValue)
    guard let shared = templates[index] else { throw .noTemplate }
    if shared.template.isSaidByCancel, delivery.followsCancel { throw .saidByCancel }
    let sentAt = delivery.deadlineAtMicroseconds / 1000 - (delivery.deadline - now).milliseconds
    let renderer = TemplateRenderer(delivery, sentAtMilliseconds: sentAt, appLanguage: appLanguage)
    let body: [UInt8]
    var members: FCMMessageMembers
    do throws(TemplateRenderer.MissingField) {
      body = try renderer.render(shared.template.body)
      members = try renderer.members(of: shared.template, isAndroid: delivery.platform == .android)
    } catch {
      throw .missingField(error.name.spelling)
    }
    let limit = provider.bodyLimit(for: kind)
    if body.count + members.count > limit, delivery.platform == .unknown {
      members.apns = []  // the phone may well be an Android, which needs the data alone
    }
    let size = body.count + members.count
    guard size <= limit else { throw .payloadTooLarge(bytes: size, limit: limit) }
    return PushRequest(
      tag: tag, deliveryID: DeliveryID(delivery.lease), kind: kind.pushKind,
      environment: delivery.environment, token: delivery.token, body: body,
      collapseID: shared.template.collapse == .none ? nil : Self.collapseID(delivery.callID),
      deadline: delivery.deadline,
      expiresAtMilliseconds: delivery.deadlineAtMicroseconds / 1000, manner: shared.template.manner, fcm: members)
  }

  /// The id itself where a header of at most 64 bytes can carry it, else its SHA-256 in hex, which is 64 bytes long.
  static func collapseID(_ callID: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let fits = callID.count <= 64 && callID.allSatisfy { 0x21...0x7E ~= $0 }
    return fits ? callID : SHA256.hexDigest(Array(callID))[...]
  }
}

extension DeliveryID {
  /// A UUID of version 8 (RFC 9562 §5.8) in which the two numbers can be read: `oooooooo-oooo-8ooo-8000-0000nnnnnnnn`.
  ///
  /// The outbox id fills the first 60 free bits and the next four, the push number the last 32: no two deliveries of one
  /// database share an id, and whoever sees one in a provider's log finds the row.
  init(_ lease: DeliveryLease) {
    let outbox = UInt64(bitPattern: lease.outboxID)
    let low60 = outbox & 0x0FFF_FFFF_FFFF_FFFF
    self.init(
      high: (low60 >> 12) << 16 | 0x8000 | (low60 & 0x0FFF),
      low: 0x8000_0000_0000_0000 | (outbox >> 60) << 56 | UInt64(UInt32(bitPattern: lease.pushNumber)))
  }
}
