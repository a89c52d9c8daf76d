//! The stream that a driver sees, with channels behind it.

use bytes::{Buf, Bytes};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The driver's end.
pub(super) struct Pipe {
    commands: UnboundedSender<Bytes>,
    replies: UnboundedReceiver<Bytes>,
    /// What has come and did not fit into the reader's buffer.
    rest: Bytes,
}

/// The other end. Dropping it closes the stream; when the driver drops its own, there are no more commands.
pub(super) struct FarEnd {
    pub(super) commands: UnboundedReceiver<Bytes>,
    pub(super) replies: UnboundedSender<Bytes>,
}

/// Two ends of one stream. How much is in it is bounded by how much a driver has unanswered.
pub(super) fn new() -> (Pipe, FarEnd) {
    let (to_far, commands) = unbounded_channel();
    let (replies, from_far) = unbounded_channel();
    (Pipe { commands: to_far, replies: from_far, rest: Bytes::new() }, FarEnd { commands, replies })
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.replies.poll_recv(cx)) {
                Some(bytes) => self.rest = bytes,
                // The end of the stream.
                None => return Poll::Ready(Ok(())),
            }
        }
        let fits = self.rest.len().min(buf.remaining());
        buf.put_slice(self.rest.get(..fits).unwrap_or_default());
        self.rest.advance(fits);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.commands.send(Bytes::copy_from_slice(bytes));
        Poll::Ready(sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use std::future::poll_fn;
    use tokio_util::io::{poll_write_buf, read_buf};

    async fn write(pipe: &mut Pipe, bytes: &'static [u8]) -> io::Result<usize> {
        let mut bytes = bytes;
        poll_fn(|cx| poll_write_buf(Pin::new(pipe), cx, &mut bytes)).await
    }

    #[tokio::test]
    async fn bytes_go_both_ways_in_order() {
        let (mut near, mut far) = new();
        for bytes in [&b"ab"[..], b"c"] {
            assert_eq!(write(&mut near, bytes).await.expect("an open pipe"), bytes.len());
        }
        assert_eq!(far.commands.recv().await.as_deref(), Some(&b"ab"[..]));
        assert_eq!(far.commands.recv().await.as_deref(), Some(&b"c"[..]));
        for bytes in ["hello", "world"] {
            far.replies.send(bytes.into()).expect("an open pipe");
        }
        let mut read = BytesMut::new();
        while read.len() < 10 {
            let mut small = [0; 3];
            let mut buffer = ReadBuf::new(&mut small);
            poll_fn(|cx| Pin::new(&mut near).poll_read(cx, &mut buffer)).await.expect("an open pipe");
            assert!(!buffer.filled().is_empty());
            read.extend_from_slice(buffer.filled());
        }
        assert_eq!(&read[..], b"helloworld");
    }

    #[tokio::test]
    async fn each_end_notices_that_the_other_is_gone() {
        let (near, mut far) = new();
        drop(near);
        assert_eq!(far.commands.recv().await, None);
        let (mut near, far) = new();
        far.replies.send("last".into()).expect("an open pipe");
        drop(far);
        let mut read = BytesMut::new();
        assert_eq!(read_buf(&mut near, &mut read).await.expect("what was sent before"), 4);
        assert_eq!(read_buf(&mut near, &mut read).await.expect("the end"), 0);
        let refused = write(&mut near, b"x").await.expect_err("nobody reads");
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    }
}
