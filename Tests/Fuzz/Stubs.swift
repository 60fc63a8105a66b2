// Types that the sources name and that the targets do not need: the real ones would bring sockets and logging with them.

public final class HTTP2ConnectionPool {}
