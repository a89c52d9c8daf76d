//! `redlock exporter`: serves the numbers of the nodes to Prometheus.
//!
//! Whoever can reach the address may ask, and may be anybody: connections are few, requests are small and end in time,
//! and the nodes are asked once for all who ask at the same time.

use crate::args::{CommonArgs, ExporterArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::group_report::GroupReport;
use crate::output::Printer;
use crate::prometheus;
use crate::run::signals::Interrupts;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use redlock_client::LockManager;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// How many may be connected at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 32;
/// How long a request may take to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may last in all: a scraper comes again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// How large a request may be.
const BUFFER: usize = 16 * 1024;
/// The text format of Prometheus.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What all connections share.
struct MetricsServer {
    locks: LockManager,
    /// One report at a time: concurrent scrapes wait.
    turn: Mutex<()>,
}

pub(crate) async fn main(
    common: &CommonArgs,
    args: &ExporterArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let locks = Config::load(common)?.manager()?;
    let mut interrupts = Interrupts::listen()?;
    let unusable = |error| ExitError::internal(format!("{} cannot be listened on: {error}", args.listen));
    let listener = TcpListener::bind(args.listen).await.map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    if output.is_json {
        output.json(&json!({"listening": address.to_string()}))?;
    } else {
        output.line(&format!("Listening on http://{address}/metrics"))?;
    }
    let server = Arc::new(MetricsServer { locks, turn: Mutex::new(()) });
    tokio::select! {
        () = accept(&listener, &server) => {}
        _ = interrupts.next() => {}
    }
    Ok(Code::Success)
}

async fn accept(listener: &TcpListener, server: &Arc<MetricsServer>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let server = Arc::clone(server);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serve(stream, server)).await;
                    drop(place);
                });
            }
            // Too many open files, most likely: they will be fewer again.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: TcpStream, server: Arc<MetricsServer>) {
    let service = service_fn(|request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(answer(&request, &server).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER);
    // What is wrong with a client is the client's affair.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: &Request<Incoming>, server: &MetricsServer) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let _turn = server.turn.lock().await;
            match GroupReport::take(&server.locks).await {
                Ok(report) => {
                    let mut response = plain(StatusCode::OK, prometheus::text(&report));
                    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EXPOSITION));
                    response
                }
                Err(failure) => plain(StatusCode::INTERNAL_SERVER_ERROR, failure.message + "\n"),
            }
        }
        "/" => plain(StatusCode::OK, "redlock exporter: see /metrics\n".into()),
        _ => plain(StatusCode::NOT_FOUND, "see /metrics\n".into()),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
