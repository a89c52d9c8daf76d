//! A stream that ends when somebody says so.

use crate::connect::Stream;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

/// A stream that is of no use any more once a task has ended. The task ends with the stream.
pub(super) struct Minded {
    stream: Box<dyn Stream>,
    minder: JoinHandle<()>,
}

impl Minded {
    pub(super) fn new(stream: Box<dyn Stream>, minder: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { stream, minder: tokio::spawn(minder) }
    }
}

impl AsyncRead for Minded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Once it has ended, nobody may ask it again; and nobody reads on after an error.
        if !self.minder.is_finished() && Pin::new(&mut self.minder).poll(cx).is_pending() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        Poll::Ready(Err(io::Error::other("Sentinel names another master")))
    }
}

impl AsyncWrite for Minded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Minded {
    fn drop(&mut self) {
        self.minder.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use std::future::pending;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio_util::io::read_buf;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let near = TcpStream::connect(address).await.expect("a connection");
        (near, listener.accept().await.expect("a connection").0)
    }

    #[tokio::test]
    async fn the_stream_ends_when_the_minder_says_so() {
        let (near, far) = pair().await;
        let (say, said) = oneshot::channel::<()>();
        let mut minded = Minded::new(Box::new(near), async move {
            let _ = said.await;
        });
        far.writable().await.expect("an open stream");
        far.try_write(b"before").expect("an open stream");
        let mut read = BytesMut::new();
        read_buf(&mut minded, &mut read).await.expect("an open stream");
        assert_eq!(&read[..], b"before");
        say.send(()).expect("a minder");
        let error = read_buf(&mut minded, &mut read).await.expect_err("the end");
        assert!(error.to_string().contains("another master"));
        assert!(read_buf(&mut minded, &mut read).await.is_err(), "what is over stays over");
    }

    #[tokio::test]
    async fn the_minder_ends_with_the_stream() {
        let (near, _far) = pair().await;
        let (alive, mut gone) = oneshot::channel::<()>();
        let minded = Minded::new(Box::new(near), async move {
            let _alive = alive;
            pending().await
        });
        tokio::task::yield_now().await;
        assert_eq!(gone.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(minded);
        assert!(gone.await.is_err());
    }
}
