// What is known of a request beside itself: who is at the other end.

internal import Hummingbird
internal import NIOCore
internal import Settings

package struct OpsRequestContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  /// The other end of the connection, which may be a proxy.
  let peer: IPAddress
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
    peer = IPAddress(source.channel.remoteAddress)
  }
}
