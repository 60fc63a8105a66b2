// Stubs of types that the sources name and the targets do not need: the real ones depend on sockets and logging.

public final class HTTP2ConnectionPool {}
