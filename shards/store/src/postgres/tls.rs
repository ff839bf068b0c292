//! TLS to the server, by rustls.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream as RustlsStream,
    rustls::{
        CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
        client::{
            WebPkiServerVerifier,
            danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        },
        crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    },
};

use super::{config::SslMode, socket::Socket};

/// Why no encrypted connection can be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file with the certificates to trust.
    #[error("PG_SSLROOTCERT: {path:?} cannot be read: {reason}")]
    RootCert {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system has none.
    #[error("this system has no certificates to trust: name some in PG_SSLROOTCERT")]
    NoRoots,
    /// What rustls says.
    #[error("TLS cannot be set up: {0}")]
    Rustls(#[from] Error),
}

/// What rustls needs for a mode; blocks on the disk.
pub(super) fn client_config(mode: SslMode, root_cert: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    // As libpq does: with a file of certificates, "require" looks at the server's.
    let check = match (mode, root_cert) {
        (SslMode::VerifyFull, _) => Check::Name,
        (SslMode::VerifyCa, _) | (SslMode::Require, Some(_)) => Check::Issuer,
        _ => Check::Nothing,
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verifier: Arc<dyn ServerCertVerifier> = match check {
        Check::Nothing => Arc::new(Lenient { provider, issuers: None }),
        Check::Name | Check::Issuer => {
            let issuers = WebPkiServerVerifier::builder_with_provider(roots(root_cert)?.into(), Arc::clone(&provider))
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
            if check == Check::Name { issuers } else { Arc::new(Lenient { provider, issuers: Some(issuers) }) }
        }
    };
    Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// What of the server's certificate is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Nothing,
    Issuer,
    Name,
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) };
    };
    let failed = |reason: String| TlsError::RootCert { path: path.to_owned(), reason };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?.collect();
    for certificate in certificates.map_err(|error| failed(error.to_string()))? {
        roots.add(certificate)?;
    }
    if roots.is_empty() { Err(failed("it holds no certificate".into())) } else { Ok(roots) }
}

/// Takes certificates for any name, from these issuers or from anybody.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    issuers: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(issuers) = &self.issuers else { return Ok(ServerCertVerified::assertion()) };
        match issuers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is the last thing that is checked.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Makes a connection's TLS.
pub(super) struct Connector {
    pub(super) config: Arc<ClientConfig>,
    pub(super) host: String,
}

impl TlsConnect<Socket> for Connector {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>>>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let stream = TlsConnector::from(self.config).connect(name, socket).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted stream.
pub(super) struct Encrypted(Box<RustlsStream<Socket>>);

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encrypted").finish_non_exhaustive()
    }
}

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
