//! Bytes in and out as state machines: HTTP/1.1 and JSON spans. No sockets.
