//! The page: one document with its style and its script, and headers that forbid everything else.

use super::{respond, with};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY};
use hyper::{Response, StatusCode};
use uuid::Uuid;

const DOCUMENT: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page. Its policy permits this style and this script, marked with a number of this response, and requests to this
/// server: whatever text a label or an error has, the browser runs nothing else and asks nobody else.
pub(super) fn response() -> Response<Full<Bytes>> {
    let nonce = Uuid::new_v4().simple().to_string();
    let page = DOCUMENT.replace("{style}", STYLE).replace("{script}", SCRIPT).replace("{nonce}", &nonce);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let response = respond(StatusCode::OK, "text/html; charset=utf-8", page);
    let response = with(response, REFERRER_POLICY, "no-referrer");
    let mut response = with(response, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}
