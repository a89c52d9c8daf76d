//! TCP, Unix sockets and TLS as one kind of stream.

use super::{Address, ConnectFailure, tls};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to a node: TCP, a Unix socket or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Takes the stream from its runtime, for use without one.
    fn detach(self: Box<Self>) -> io::Result<Box<dyn DetachedStream>>;
}

/// A byte stream that needs no runtime.
pub(crate) trait DetachedStream: io::Read + io::Write + Send {
    /// The socket, to set whether calls block and for how long.
    fn socket(&self) -> SockRef<'_>;
}

impl Stream for TcpStream {
    fn detach(self: Box<Self>) -> io::Result<Box<dyn DetachedStream>> {
        Ok(Box::new(self.into_std()?))
    }
}

impl DetachedStream for std::net::TcpStream {
    fn socket(&self) -> SockRef<'_> {
        SockRef::from(self)
    }
}

#[cfg(unix)]
impl Stream for tokio::net::UnixStream {
    fn detach(self: Box<Self>) -> io::Result<Box<dyn DetachedStream>> {
        Ok(Box::new(self.into_std()?))
    }
}

#[cfg(unix)]
impl DetachedStream for std::os::unix::net::UnixStream {
    fn socket(&self) -> SockRef<'_> {
        SockRef::from(self)
    }
}

#[cfg(test)]
impl Stream for tokio::io::DuplexStream {
    fn detach(self: Box<Self>) -> io::Result<Box<dyn DetachedStream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Idle time before the first TCP keepalive probe.
///
/// With probes the kernel detects a dead connection between two locks, before the next lock needs it.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// Time between two TCP keepalive probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

/// Opens a stream to an address.
pub(super) async fn open(address: &Address) -> Result<Box<dyn Stream>, ConnectFailure> {
    match address {
        Address::Tcp { host, port, tls } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(|error| ConnectFailure::of_stream(&error))?;
            tune(&stream);
            match tls {
                None => Ok(Box::new(stream)),
                Some(settings) => tls::secure(stream, host, settings).await,
            }
        }
        #[cfg(unix)]
        Address::Unix(path) => match tokio::net::UnixStream::connect(path).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(ConnectFailure::of_stream(&error)),
        },
        #[cfg(not(unix))]
        Address::Unix(_) => {
            Err(ConnectFailure::Unreachable("this platform does not support Unix sockets".to_owned()))
        }
    }
}

/// Sets `TCP_NODELAY`, so that small commands are sent at once, and TCP keepalive, which detects a dead peer.
///
/// Both options are optional; errors are ignored. Without them the connection is slower, not incorrect.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn small_commands_leave_at_once_and_silence_is_noticed() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let stream = TcpStream::connect(address).await.expect("a connection");
        assert!(!SockRef::from(&stream).keepalive().expect("an answer"), "nothing was tuned yet");
        tune(&stream);
        assert!(stream.nodelay().expect("an answer"));
        assert!(SockRef::from(&stream).keepalive().expect("an answer"));
    }

    #[tokio::test]
    async fn nobody_there_is_unreachable() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("its address").port();
        drop(listener);
        let tcp = Address::Tcp { host: "127.0.0.1".into(), port, tls: None };
        let folder = std::env::temp_dir();
        for address in [tcp, Address::Unix(folder.join("redlock-no-such-socket"))] {
            let failure = open(&address).await.err();
            assert!(matches!(failure, Some(ConnectFailure::Unreachable(_))), "{address}: {failure:?}");
        }
    }
}
