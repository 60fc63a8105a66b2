// Makes the request for a claimed delivery: its body and deadline, or the reason why it cannot be sent.

public import Providers
internal import PushModel
public import Queue
public import Runtime

/// Why a delivery cannot be sent. A retry does not help against any of these.
public enum PlanningFailure: Error, Equatable, Sendable {
  /// The ring window is over.
  case expired
  /// The app's dialect has no template for this provider and kind.
  case noTemplate
  /// The payload lacks what the template needs.
  case missingField(String)
  /// A missed call that the phone already learns from a cancel, because the cancel says that the call was missed.
  case saidByCancel
  /// The body is larger than the provider accepts, even with short names.
  case payloadTooLarge(bytes: Int, limit: Int)

  /// Whether the only reason is the deadline.
  public var isExpired: Bool { self == .expired }

  /// Whether the phone does not need this push.
  public var isNeedless: Bool { self == .saidByCancel }

  /// The reason in `push.history` and in metrics: one word, no content.
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
  /// A class, so that passing a template costs one reference count instead of many.
  private final class Shared: Sendable {
    let template: MessageTemplate

    init(_ template: MessageTemplate) { self.template = template }
  }

  /// By kind and platform.
  private let templates: [Shared?]
  private let appLanguage: Language?
  private let unknownName: [UInt8]?
  private let missedCallChannel: [UInt8]?
  private let showsMessageText: Bool

  /// - Parameters:
  ///   - dialect: the app's dialect.
  ///   - provider: the lane's provider.
  ///   - appLocale: BCP 47; the language of the gateway's texts if the device's locale selects none.
  ///   - unknownName: stands for a `fromName` that is missing.
  ///   - missedCallChannel: Android's channel for missed calls; nil: the dialect's.
  ///   - showsMessageText: whether the text of a message may be sent.
  public init(
    dialect: Dialect, provider: ProviderKind, appLocale: String? = nil, unknownName: String? = nil,
    missedCallChannel: String? = nil, showsMessageText: Bool = false
  ) {
    self.provider = provider
    templates = PushTemplateKind.allCases.flatMap { kind in
      Self.platforms.map { dialect.template(provider, kind, on: $0).map(Shared.init) }
    }
    appLanguage = appLocale.flatMap { Language(locale: $0.utf8) }
    self.unknownName = unknownName.map { Array($0.utf8) }
    self.missedCallChannel = missedCallChannel.map { Array($0.utf8) }
    self.showsMessageText = showsMessageText
  }

  /// The request for a delivery, or why there is none. Depends only on its arguments.
  /// - Parameters:
  ///   - delivery: as claimed from the outbox; its payload is an object, as `push.outbox.payload` holds it.
  ///   - now: compared with the delivery's deadline. The time of sending by the database's clock is computed from the remaining
  ///     time, so a wrong wall clock of the gateway does not matter.
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
    func render(_ call: CallData) throws(PlanningFailure) -> (body: [UInt8], members: FCMMessageMembers) {
      let renderer = TemplateRenderer(
        delivery, call: call, sentAtMilliseconds: sentAt, appLanguage: appLanguage, unknownName: unknownName,
        missedCallChannel: missedCallChannel, showsMessageText: showsMessageText)
      do throws(TemplateRenderer.MissingField) {
        return (
          try renderer.render(shared.template.body),
          try renderer.members(of: shared.template, isAndroid: delivery.platform == .android)
        )
      } catch {
        throw .missingField(error.name.spelling)
      }
    }
    var (body, members) = try render(delivery.call)
    let limit = provider.bodyLimit(for: kind)
    if body.count + members.count > limit { (body, members) = try render(delivery.call.withShortNames()) }
    if body.count + members.count > limit, delivery.platform == .unknown {
      members.apns = []  // the phone may be an Android, which needs only the data
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
  /// database share an id, and the row can be found from an id in a provider's log.
  init(_ lease: DeliveryLease) {
    let outbox = UInt64(bitPattern: lease.outboxID)
    let low60 = outbox & 0x0FFF_FFFF_FFFF_FFFF
    self.init(
      high: (low60 >> 12) << 16 | 0x8000 | (low60 & 0x0FFF),
      low: 0x8000_0000_0000_0000 | (outbox >> 60) << 56 | UInt64(UInt32(bitPattern: lease.pushNumber)))
  }
}
