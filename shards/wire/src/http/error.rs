//! Every way in which a connection's bytes are refused, with the answer each one gets.

/// Why the bytes of a connection are not a request that is served.
///
/// The answer is [`HttpError::status`] with a JSON body of [`HttpError::code`] and the `Display`
/// sentence; after it the connection is closed, for where the next request would begin is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The request line is not `method SP target SP version CRLF`.
    #[error("the request line is malformed")]
    RequestLine,
    /// A header line is not `name: value CRLF`, or is folded onto a second line.
    #[error("a header line is malformed")]
    Header,
    /// A line of the head does not end with CR LF: with one of the two alone, or with something
    /// else where the version should have ended the request line.
    #[error("a line of the request head does not end with CR LF")]
    LineEnd,
    /// More empty lines before a request than [`super::BLANK_LINES_MAX`].
    #[error("too many empty lines before the request")]
    BlankLines,
    /// The target is neither a path, nor an absolute http URL, nor `*`, or it has a fragment.
    #[error("the request target must be a path, an absolute http URL, or *")]
    Target,
    /// An HTTP/1.1 request without a Host header.
    #[error("the Host header is missing")]
    HostMissing,
    /// More than one Host header.
    #[error("the Host header is given more than once")]
    HostRepeated,
    /// A Content-Length that is not a plain decimal number.
    #[error("the Content-Length header is not a decimal number")]
    ContentLength,
    /// More than one Content-Length header, equal or not.
    #[error("the Content-Length header is given more than once")]
    ContentLengthRepeated,
    /// Content-Length and Transfer-Encoding in one request.
    #[error("Content-Length and Transfer-Encoding exclude each other")]
    LengthAndTransferEncoding,
    /// A Transfer-Encoding that is not exactly `chunked`.
    #[error("the only Transfer-Encoding served is chunked")]
    TransferEncoding,
    /// A Transfer-Encoding in an HTTP/1.0 request, whose framing no two servers agree on.
    #[error("HTTP/1.0 has no Transfer-Encoding")]
    TransferEncodingInHttp10,
    /// A chunk that does not begin with a hexadecimal size and CRLF, or does not end with CRLF.
    #[error("the chunked body is malformed")]
    Chunk,
    /// A line after the last chunk that is not a header line.
    #[error("a trailer line is malformed")]
    Trailer,
    /// More than one `x-queen-tenant` header.
    #[error("the x-queen-tenant header is given more than once")]
    TenantRepeated,
    /// More than one Authorization header.
    #[error("the Authorization header is given more than once")]
    AuthorizationRepeated,
    /// The head or the body did not come in time. The decoder has no clock: the I/O part makes this.
    #[error("the request did not arrive in time")]
    Timeout,
    /// The body is larger than [`super::Limits::body_bytes_max`].
    #[error("the request body is larger than QUEEN_MAX_BODY_BYTES allows")]
    BodyTooLarge,
    /// An Expect header that is not `100-continue`.
    #[error("the only expectation served is 100-continue")]
    Expectation,
    /// The head or the trailers are longer than [`super::Limits::head_bytes_max`].
    #[error("the request head is larger than this broker accepts")]
    HeadTooLarge,
    /// More header lines than [`super::Limits::headers_max`].
    #[error("the request has more headers than this broker accepts")]
    TooManyHeaders,
    /// A version of HTTP other than 1.0 and 1.1.
    #[error("the only versions of HTTP served are 1.0 and 1.1")]
    Version,
}

impl HttpError {
    /// The status of the answer.
    pub fn status(self) -> u16 {
        match self {
            Self::Timeout => 408,
            Self::BodyTooLarge => 413,
            Self::Expectation => 417,
            Self::HeadTooLarge | Self::TooManyHeaders => 431,
            Self::Version => 505,
            Self::RequestLine
            | Self::Header
            | Self::LineEnd
            | Self::BlankLines
            | Self::Target
            | Self::HostMissing
            | Self::HostRepeated
            | Self::ContentLength
            | Self::ContentLengthRepeated
            | Self::LengthAndTransferEncoding
            | Self::TransferEncoding
            | Self::TransferEncodingInHttp10
            | Self::Chunk
            | Self::Trailer
            | Self::TenantRepeated
            | Self::AuthorizationRepeated => 400,
        }
    }

    /// The word for programs, the answer's `code`: one per status.
    pub fn code(self) -> &'static str {
        match self.status() {
            408 => "request_timeout",
            413 => "payload_too_large",
            417 => "expectation_failed",
            431 => "head_too_large",
            505 => "http_version",
            _ => "bad_request",
        }
    }
}
