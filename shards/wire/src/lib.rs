//! Bytes in and out as state machines: HTTP/1.1, JSON spans, the request bodies and queries of the
//! routes, and what brokers say to each other. No sockets, no clock, no runtime.
//!
//! The data shard is the caller. It reads bytes into a buffer of its own, asks
//! [`http::Decoder::decode`] for the next request in them, hands the body to [`body`] or [`durable`]
//! and the query to [`target`], and appends the answer with [`response`]. Nothing here keeps more than a
//! connection's progress, and everything that comes out borrows the bytes that came in, so that a
//! payload is not copied before the engine takes it.
//!
//! ```
//! use queen_wire::http::{Decoded, Decoder, Limits};
//!
//! let mut decoder = Decoder::new();
//! let bytes = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
//! match decoder.decode(bytes, &Limits::default()) {
//!     Decoded::Request { request, consumed } => {
//!         assert_eq!(request.path, "/health");
//!         assert_eq!(consumed, bytes.len());
//!     }
//!     other => panic!("{other:?}"),
//! }
//! ```

pub mod body;
pub mod durable;
pub mod http;
pub mod json;
pub mod mesh;
pub mod name;
pub mod peer;
pub mod response;
mod scan;
pub mod target;
pub mod time;
