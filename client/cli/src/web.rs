//! The HTTP server of `redlock exporter` and `redlock ui`. It only reads.
//!
//! | file | subject |
//! |---|---|
//! | `live.rs` | collects what the page shows |
//! | `page.rs` | puts the page together from `page.html`, `page.css` and `page.js`, with its security headers |
//!
//! Every client that reaches the address can send requests, also a hostile one. So the number of connections, the size
//! and the duration of a request are limited, and the server asks the nodes for one request at a time.
//!
//! The page shows the names of locks, so only a person at a browser may read it, and no other web site: a hostile site
//! can let its own name lead to this address (DNS rebinding), and its pages could then read the answers. Such a request
//! carries the name of the site. So the server of the page answers only if the URL has an IP address, `localhost`, or a
//! name that the operator gave.

pub(crate) mod live;
mod page;

use crate::exit::{Code, ExitError};
use crate::group_report::GroupReport;
use crate::output::Printer;
use crate::prometheus;
use crate::run::signals::Interrupts;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use live::LiveState;
use redlock_client::LockManager;
use serde_json::json;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;

/// How many connections to serve at a time. More wait in the kernel's queue.
const CONNECTIONS: usize = 32;
/// How long a request may take to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection takes new requests. A scraper or a browser connects again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the last request of a connection may take after that.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest request, in bytes.
const BUFFER: usize = 16 * 1024;
/// The content type of the Prometheus text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The state that all connections share.
pub(crate) struct Site {
    locks: LockManager,
    /// One report at a time: concurrent scrapes wait.
    one_report: Mutex<()>,
    /// `None`: the server has no page, and never shows the name of a lock.
    page: Option<Page>,
}

/// What the page shows, and under which names.
struct Page {
    live: LiveState,
    /// Host names that a URL may have, beside `localhost` and IP addresses.
    hosts: Vec<String>,
}

impl Site {
    /// Only the metrics.
    pub(crate) fn metrics(locks: LockManager) -> Self {
        Self { locks, one_report: Mutex::new(()), page: None }
    }

    /// The page, and the metrics, under these host names.
    pub(crate) fn with_page(locks: LockManager, live: LiveState, hosts: Vec<String>) -> Self {
        Self { page: Some(Page { live, hosts }), ..Self::metrics(locks) }
    }
}

/// Serves the site until a signal arrives. `path` is what the printed URL leads to.
pub(crate) async fn serve(
    listen: SocketAddr,
    path: &str,
    site: Site,
    output: &Printer,
) -> Result<Code, ExitError> {
    let mut interrupts = Interrupts::listen()?;
    let unusable = |error| ExitError::internal(format!("cannot listen on {listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    if output.is_json {
        output.json(&json!({"listening": address.to_string()}))?;
    } else {
        output.line(&format!("Listening on http://{address}{path}"))?;
    }
    let site = Arc::new(site);
    let watch = async {
        match &site.page {
            Some(page) => page.live.watch().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = accept(&listener, &site) => {}
        () = watch => {}
        _ = interrupts.next() => {}
    }
    Ok(Code::Success)
}

async fn accept(listener: &TcpListener, site: &Arc<Site>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(site);
                tokio::spawn(async move {
                    converse(stream, site).await;
                    drop(place);
                });
            }
            // Most likely too many open files: try again later.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Serves one connection.
async fn converse(stream: TcpStream, site: Arc<Site>) {
    let service = service_fn(|request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(answer(&request, &site).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // A broken or malformed request only concerns its client.
    if timeout(CONNECTION_TIMEOUT, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_REQUEST_TIMEOUT, connection).await;
    }
}

async fn answer(request: &Request<Incoming>, site: &Site) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let text = "only GET and HEAD are allowed\n";
        return with(respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, text), ALLOW, "GET, HEAD");
    }
    if let Some(page) = &site.page
        && !page.is_named_by(request)
    {
        let text =
            "use localhost or an IP address in the URL, or start redlock ui with --host and this name\n";
        return respond(StatusCode::FORBIDDEN, TEXT, text);
    }
    match (request.uri().path(), &site.page) {
        ("/metrics", _) => {
            let _one_report = site.one_report.lock().await;
            match GroupReport::take(&site.locks).await {
                Ok(report) => respond(StatusCode::OK, EXPOSITION, prometheus::text(&report)),
                Err(failure) => failed(failure),
            }
        }
        ("/", Some(_)) => page::response(),
        ("/state.json", Some(page)) => match page.live.json().await {
            Ok(state) => respond(StatusCode::OK, JSON, state),
            Err(failure) => failed(failure),
        },
        ("/", None) => {
            let text = "redlock exporter: the metrics are at /metrics; redlock ui serves a page for people\n";
            respond(StatusCode::OK, TEXT, text)
        }
        (_, None) => respond(StatusCode::NOT_FOUND, TEXT, "not found: the metrics are at /metrics\n"),
        (_, Some(_)) => {
            respond(StatusCode::NOT_FOUND, TEXT, "not found: the page is at /, the metrics are at /metrics\n")
        }
    }
}

impl Page {
    /// Whether the URL of the request has an IP address, `localhost`, or one of the given names.
    fn is_named_by(&self, request: &Request<Incoming>) -> bool {
        // Every browser sends the header.
        let Some(host) = request.headers().get(HOST) else { return true };
        host.to_str().is_ok_and(|host| is_allowed(host, &self.hosts))
    }
}

fn is_allowed(host: &str, names: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    is_address
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn failed(failure: ExitError) -> Response<Full<Bytes>> {
    respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, failure.message + "\n")
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let response = with(response, CONTENT_TYPE, kind);
    let response = with(response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    with(response, CACHE_CONTROL, "no-store")
}

fn with(mut response: Response<Full<Bytes>>, name: HeaderName, value: &'static str) -> Response<Full<Bytes>> {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_an_address_or_an_allowed_name() {
        let names = ["lock-console".to_owned()];
        for allowed in [
            "localhost",
            "LOCALHOST:9465",
            "127.0.0.1",
            "10.0.0.7:9465",
            "[::1]:9465",
            "[2001:db8::7]",
            "Lock-Console:80",
        ] {
            assert!(is_allowed(allowed, &names), "{allowed}");
        }
        for other in [
            "",
            ":9465",
            "evil.example",
            "evil.example:9465",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::1",
            "[::1].evil.example",
            "[127.0.0.1]",
            "x:y",
        ] {
            assert!(!is_allowed(other, &names), "{other}");
        }
    }
}
