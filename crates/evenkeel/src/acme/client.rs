//! Sends the requests of ACME to the authority, each over a connection of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_tls::{Authorities, Tls};
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Limit of a request with its response.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// Longest response in bytes; certificates have a few thousand.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

const PRODUCT: &str = concat!("evenkeel/", env!("CARGO_PKG_VERSION"));

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Client of an authority.
pub(super) struct Client {
    /// Authorities that sign the server's certificate. `None`: the public ones.
    pub(super) ca: Option<Authorities>,
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let ca = self.ca.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let sent = tokio::time::timeout(REQUEST_LIMIT, send(ca, request)).await;
            let sent = sent.unwrap_or_else(|_| Err("no response within 30 s".into()));
            sent.map_err(|why| Error::Other(format!("{host}: {why}").into()))
        })
    }
}

async fn send(
    ca: Option<Authorities>,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, Failure> {
    let uri = request.uri().clone();
    if uri.scheme_str() != Some("https") {
        return Err(format!("{uri} is not a URL with https").into());
    }
    let host = uri.host().ok_or("a URL without a host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let tls = Tls::Verify {
        ca,
        fingerprints: Vec::new(),
        server_name: host.to_owned(),
        identity: None,
    };
    let tls = evenkeel_tls::client_config(&tls)?.ok_or("no TLS")?;
    let name = evenkeel_tls::check_name(host)?;
    let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream);
    let stream = TokioIo::new(stream.await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // It ends with the response: the sender is dropped then.
    tokio::spawn(connection);
    let authority = uri.authority().ok_or("a URL without a host")?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse()?;
    let fields = request.headers_mut();
    fields.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    fields.insert(USER_AGENT, HeaderValue::from_static(PRODUCT));
    let (parts, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await?;
    Ok(BytesResponse {
        parts,
        body: Box::new(body.to_bytes()),
    })
}
