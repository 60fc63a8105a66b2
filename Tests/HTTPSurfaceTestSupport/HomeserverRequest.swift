// Requests as Synapse builds them for Matrix's Push Gateway API, and as gorush's documentation shows them.

import Foundation

/// A request of Synapse for one pusher. The members, their order and their defaults are those of its HttpPusher.
package struct HomeserverRequest {
  package static let appleKey = "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="
  /// The same token as the gateway sends it to Apple.
  package static let appleToken = String(repeating: "ab", count: 32)
  package static let androidKey = "cQ7mZl2pR0uX:APA91bHmatrix-phone"

  package var eventID = "$qTOWWTEL48yPm3uT-gdNhFcoHxfKbZuqRVnnWWSkGBs"
  package var type = "m.call.invite"
  package var sender = "@major:example.org"
  /// JSON; nil: the homeserver sends no content.
  package var content: String? = invite()
  package var appID = "com.example.app.android"
  package var pushKey = androidKey
  package var setAt = 1_700_000_000
  /// Further members of the notification, each followed by a comma.
  package var more = ""

  package init() {}

  package init(_ change: (inout HomeserverRequest) -> Void) { change(&self) }

  /// The content of `m.call.invite`, with a session description as browsers write it.
  package static func invite(_ callID: String = "16f1b2c8d7e6", lifetime: Int = 60_000, video: Bool = false) -> String {
    let media =
      video
      ? #"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\n"#
      : #"m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"#
    return #"""
      {"call_id":"\#(callID)","lifetime":\#(lifetime),"offer":{"sdp":"v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\n\#(media)","type":"offer"},"party_id":"WJXVQPWQ","version":"1"}
      """#
  }

  package var json: String {
    let content = content.map { #""content":\#($0),"# } ?? ""
    return #"""
      {"notification":{"id":"\#(eventID)","event_id":"\#(eventID)","room_id":"!slw48wfj34rtnrf:example.org","type":"\#(type)","sender":"\#(sender)","prio":"high","counts":{"unread":2},\#(content)\#(more)"sender_display_name":"Major Tom","room_name":"Mission Control","devices":[{"app_id":"\#(appID)","pushkey":"\#(pushKey)","pushkey_ts":\#(setAt),"data":{"format":null,"default_payload":{"aps":{"mutable-content":1}}},"tweaks":{"sound":"ring","highlight":false}}]}}
      """#
  }

  /// A pusher with `format: event_id_only`.
  package var eventIDOnly: String {
    #"""
    {"notification":{"event_id":"\#(eventID)","room_id":"!slw48wfj34rtnrf:example.org","prio":"high","counts":{"unread":1},"devices":[{"app_id":"\#(appID)","pushkey":"\#(pushKey)","pushkey_ts":\#(setAt),"data":{"format":"event_id_only"}}]}}
    """#
  }

  /// The user has read messages on another device.
  package var badge: String {
    #"""
    {"notification":{"id":"","type":null,"sender":"","counts":{"unread":0},"devices":[{"app_id":"\#(appID)","pushkey":"\#(pushKey)","pushkey_ts":\#(setAt),"data":{}}]}}
    """#
  }

  /// The example of Matrix's Push Gateway API.
  package static let specification = #"""
    {"notification":{"content":{"body":"I'm floating in a most peculiar way.","msgtype":"m.text"},"counts":{"missed_calls":1,"unread":2},"devices":[{"app_id":"com.example.app.android","data":{"format":"event_id_only"},"pushkey":"cQ7mZl2pR0uX:APA91bHmatrix-phone","pushkey_ts":12345678,"tweaks":{"sound":"bing"}}],"event_id":"$3957tyerfgewrf384","prio":"high","room_alias":"#exampleroom:matrix.org","room_id":"!slw48wfj34rtnrf:example.com","room_name":"Mission Control","sender":"@exampleuser:matrix.org","sender_display_name":"Major Tom","type":"m.room.message","user_is_target":false}}
    """#
}
