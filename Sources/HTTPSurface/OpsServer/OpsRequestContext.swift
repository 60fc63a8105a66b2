// What is known about a request apart from the request itself.

internal import Hummingbird
internal import NIOCore
internal import Settings

package struct OpsRequestContext: RequestContext {
  var coreContext: CoreRequestContextStorage
  /// The address at the other end of the connection, which may be a proxy.
  let peer: IPAddress
  let channel: any Channel

  init(source: ApplicationRequestContextSource) {
    coreContext = CoreRequestContextStorage(source: source)
    channel = source.channel
    peer = IPAddress(source.channel.remoteAddress)
  }
}
