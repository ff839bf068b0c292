//! A certificate authority of a test's own and the certificate that it gives to the broker, in files.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

/// An authority, and the broker's certificate for `localhost` and 127.0.0.1.
pub struct Certificates {
    directory: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    /// Makes both.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let directory = TempDir::with_prefix("queen-tls-").expect("a temporary directory");
        fs::write(directory.path().join("ca.pem"), authority.pem()).expect("a file");
        let certificates = Self { directory, authority };
        certificates.renew();
        certificates
    }

    /// Puts another certificate, with another key, in the place of the one that is there.
    pub fn renew(&self) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).expect("names");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        fs::write(self.file("certificate.pem"), certificate.pem()).expect("a file");
        self.write_key(&key.serialize_pem());
    }

    /// Puts something in the place of the key.
    pub fn write_key(&self, pem: &str) {
        fs::write(self.file("key.pem"), pem).expect("a file");
    }

    /// Where the authority's certificate is.
    pub fn authority_file(&self) -> PathBuf {
        self.file("ca.pem")
    }

    /// The settings of a broker that uses them.
    pub fn settings(&self) -> [(&'static str, String); 2] {
        let path = |name| self.file(name).display().to_string();
        [("QUEEN_TLS_CERT", path("certificate.pem")), ("QUEEN_TLS_KEY", path("key.pem"))]
    }

    /// A client that trusts the authority and nobody else.
    pub fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
