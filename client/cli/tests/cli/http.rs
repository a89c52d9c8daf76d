//! Plain HTTP requests.

use redlock_tests::SOON;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Sends bytes, and returns everything that the server sends until it closes the connection.
pub(crate) fn talk(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn get(address: &str, path: &str) -> String {
    talk(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
}
